/*
 * shares SECONDS A B C D: spends A, B, C and D percent of SECONDS of CPU time under four functions, by work done: all
 * call the same loop, so what a piece of work takes is the same for each.
 */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* About 2 ms: a piece gets a sample or three at 999 Hz, so that the shares of 10,000 vary less than by pure chance. */
#define STEPS_A_PIECE 1500000
#define PIECES_A_ROUND 100

static volatile uint64_t sink;

/* gcc leaves the frame pointer of functions that call nothing alone, whatever its options say, unless it is asked for. */
#define KEEP_FRAME() __asm__ volatile("" : : "r"(__builtin_frame_address(0)))

__attribute__((noinline)) static void do_piece(void)
{
	uint64_t state = sink;

	KEEP_FRAME();
	for (int step = 0; step < STEPS_A_PIECE; step++)
		state = state * 6364136223846793005ull + 1442695040888963407ull;
	sink = state;
}

/* The asm keeps the call from becoming a jump, and the four from becoming one. */
#define WORKER(name)                                                                                                   \
	__attribute__((noinline)) static void name(void)                                                               \
	{                                                                                                              \
		do_piece();                                                                                            \
		__asm__ volatile("/* " #name " */");                                                                   \
	}

WORKER(work_a)
WORKER(work_b)
WORKER(work_c)
WORKER(work_d)

static void (*const workers[])(void) = {work_a, work_b, work_c, work_d};

static void shuffle(unsigned char *deck)
{
	for (int last = PIECES_A_ROUND - 1; last > 0; last--) {
		int other = rand() % (last + 1);
		unsigned char card = deck[last];

		deck[last] = deck[other];
		deck[other] = card;
	}
}

int main(int count, char **arguments)
{
	unsigned char deck[PIECES_A_ROUND];
	int cards = 0;

	if (count != 6)
		return 1;
	for (int worker = 0; worker < 4; worker++)
		for (int card = atoi(arguments[2 + worker]); card > 0 && cards < PIECES_A_ROUND; card--)
			deck[cards++] = worker;
	while (clock() < atof(arguments[1]) * CLOCKS_PER_SEC) {
		shuffle(deck);
		for (int card = 0; card < cards; card++)
			workers[deck[card]]();
	}
}
