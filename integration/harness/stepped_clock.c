/* Library that a program preloads. As soon as the file STEPPED_CLOCK_FILE exists, the library adds
 * STEPPED_CLOCK_SECONDS to the program's real-time clock. The monotonic clock stays unchanged. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long step(void)
{
	const char *file = getenv("STEPPED_CLOCK_FILE");
	const char *seconds = getenv("STEPPED_CLOCK_SECONDS");
	return file && seconds && access(file, F_OK) == 0 ? atol(seconds) : 0;
}

int clock_gettime(clockid_t id, struct timespec *at)
{
	static int (*real)(clockid_t, struct timespec *);
	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int result = real(id, at);
	if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		at->tv_sec += step();
	return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
	struct timespec now;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &now) != 0)
		return -1;
	at->tv_sec = now.tv_sec;
	at->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *at)
{
	struct timespec now;
	time_t seconds = clock_gettime(CLOCK_REALTIME, &now) == 0 ? now.tv_sec : (time_t)-1;
	if (at)
		*at = seconds;
	return seconds;
}
