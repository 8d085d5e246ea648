/* Preloaded into a program, it says whether that program's exit handlers ran. */
#include <unistd.h>

static const char words[] = "exit handlers ran\n";

__attribute__((destructor)) static void say(void)
{
	(void)!write(STDERR_FILENO, words, sizeof words - 1);
}
