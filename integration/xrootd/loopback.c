/* A preloaded library: if a server binds all addresses of the host, it binds only 127.0.0.1. XRootD
 * has no such setting. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

int bind(int socket, const struct sockaddr *address, socklen_t length)
{
	static int (*real)(int, const struct sockaddr *, socklen_t);
	struct sockaddr_in here;

	if (!real)
		real = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "bind");
	if (!address || address->sa_family != AF_INET || length < (socklen_t)sizeof here)
		return real(socket, address, length);
	memcpy(&here, address, sizeof here);
	if (here.sin_addr.s_addr == htonl(INADDR_ANY))
		here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return real(socket, (struct sockaddr *)&here, sizeof here);
}
