// Declarations that all parts of this library use. dray_xrdcl.h describes the library.
#ifndef DRAY_XRDCL_COMMON_HH
#define DRAY_XRDCL_COMMON_HH

#include "dray_xrdcl.h"

#include <XrdCl/XrdClFile.hh>
#include <XrdCl/XrdClFileSystem.hh>
#include <XrdCl/XrdClStatus.hh>
#include <XrdCl/XrdClXRootDResponses.hh>

#include <algorithm>
#include <exception>
#include <string>

// Exports a function. All other symbols are hidden by -fvisibility=hidden.
#define DRAY_EXPORT __attribute__((visibility("default")))

struct dray_xrdcl_file {
	// The argument false disables the client plug-ins of the host. If dray itself were such a
	// plug-in, this library would call itself without end.
	XrdCl::File file{false};
	// True if other servers have the file too. Closing then does not wait for this server's answer.
	bool is_replica = false;
};

namespace dray {

// Maximum seconds of a change of names or attributes. XrdCl repeats the change after a lost
// connection. A new holder of a lease must wait until no more repetitions are possible.
const uint16_t CHANGE_SECONDS = 15;

int32_t fail(dray_xrdcl_error *error, int32_t kind, const char *words);
int32_t fail(dray_xrdcl_error *error, const XrdCl::XRootDStatus &status);
int32_t missing(dray_xrdcl_error *error);
int32_t answered(const std::string &text, char *answer, uint32_t answer_bytes, dray_xrdcl_error *error);
int32_t ask(const char *url, XrdCl::QueryCode::Code code, const char *what, char *answer,
            uint32_t answer_bytes, dray_xrdcl_error *error);
void fill(const XrdCl::StatInfo &from, dray_xrdcl_state *state);

// Returns a time limit of `seconds`, at most one hour, in the type that XrdCl uses for times. The
// type differs between versions of XrdCl.
inline uint16_t limit_of(uint32_t seconds)
{
	return static_cast<uint16_t>(std::min<uint32_t>(seconds, 3600));
}

// Returns 0 for success. Otherwise fills `error` and returns -1.
inline int32_t done(dray_xrdcl_error *error, const XrdCl::XRootDStatus &status)
{
	return status.IsOK() ? 0 : fail(error, status);
}

// Runs `call` and converts all exceptions of XrdCl and of the C++ library to errors.
template <typename Call> auto guarded(dray_xrdcl_error *error, Call call) noexcept -> decltype(call())
{
	try {
		return call();
	} catch (const std::exception &caught) {
		return fail(error, DRAY_XRDCL_INTERNAL, caught.what());
	} catch (...) {
		return fail(error, DRAY_XRDCL_INTERNAL, "the XRootD client threw an unknown exception");
	}
}

// An answer that XrdCl has allocated. The destructor frees it.
template <typename Info> struct Answer {
	Info *info = nullptr;
	~Answer() { delete info; }
};

} // namespace dray

#endif
