// Does as much work as its argument says, the same every time: that many steps of a generator of numbers.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    uint64_t state = 88172645463325252ull; // Marsaglia 2003, Xorshift RNGs
    for (long left = atol(argv[1]); left > 0; left--) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    printf("%llu\n", (unsigned long long)state);
}
