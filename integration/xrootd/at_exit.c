/* A preloaded library that prints a line when the exit handlers of the program run. */
#include <unistd.h>

static const char words[] = "exit handlers ran\n";

__attribute__((destructor)) static void say(void)
{
	(void)!write(STDERR_FILENO, words, sizeof words - 1);
}
