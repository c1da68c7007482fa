// Goes round as often as its first argument says, and allocates as often; "1" as the second one: with an instruction
// more in each turn; "2": with an allocation more in all.
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    long turns = atol(argv[1]);
    int planted = atoi(argv[2]);
    for (long left = turns; left > 0; left--) {
        void *volatile block = malloc(left % 100 + 1);
        free(block);
    }
    if (planted == 1) {
        for (long left = turns; left > 0; left--)
            __asm__ volatile("nop" ::: "memory");
    } else {
        for (long left = turns; left > 0; left--)
            __asm__ volatile("" ::: "memory");
    }
    if (planted == 2) {
        void *volatile block = malloc(1);
        free(block);
    }
}
