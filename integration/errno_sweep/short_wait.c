/* Preloaded into the stock client: it looks every 20 ms whether a third-party copy has ended, not
 * every 2.5 s. XrdCl has no setting for it. */
#include <time.h>

#define WAIT_MS_MAX 20

/* XrdSysTimer::Wait(int) */
void _ZN11XrdSysTimer4WaitEi(int milliseconds);

void _ZN11XrdSysTimer4WaitEi(int milliseconds)
{
	int shorter = milliseconds < WAIT_MS_MAX ? milliseconds : WAIT_MS_MAX;
	struct timespec wait = {.tv_nsec = shorter * 1000000L};

	nanosleep(&wait, NULL);
}
