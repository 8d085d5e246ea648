# What the Makefiles of all parts share. OUT is the folder for the built file.
OUT ?= .
CXX ?= c++
XROOTD_INCLUDE ?= /usr/include/xrootd
# The number in the file name of a plug-in is the major version of XRootD, because the server loads
# libX-5.so if its configuration names libX.so.
XROOTD_MAJOR ?= $(shell sed -n 's/.*XRDPLUGIN_SOVERSION *"\([0-9]*\)".*/\1/p' \
	$(XROOTD_INCLUDE)/XrdVersion.hh)
# The packages move the debug information into files of their own.
FLAGS := -std=c++17 -O2 -g -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror \
	-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 \
	-Wl,--version-script=exports.map -Wl,-z,defs -Wl,-z,relro,-z,now
