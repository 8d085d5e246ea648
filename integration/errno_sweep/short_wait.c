/* Library that the stock XRootD client preloads. The client then checks every 20 ms, instead of
 * every 2.5 s, whether a third-party copy has ended. XrdCl has no setting for this interval. */
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
