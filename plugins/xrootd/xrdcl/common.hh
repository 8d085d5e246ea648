// Declarations shared by all parts of this library. See dray_xrdcl.h.
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

// -fvisibility=hidden hides all other symbols of this library.
#define DRAY_EXPORT __attribute__((visibility("default")))

struct dray_xrdcl_file {
	// false: do not use the host's client plug-ins; one of dray's own would recurse.
	XrdCl::File file{false};
	// True if other servers have the file too: no call waits for this server's close.
	bool is_replica = false;
};

namespace dray {

// Maximum seconds of a change of names and attributes. XrdCl repeats it after a lost connection: a
// new lease holder must wait until the repetitions have ended.
const uint16_t CHANGE_SECONDS = 15;

int32_t fail(dray_xrdcl_error *error, int32_t kind, const char *words);
int32_t fail(dray_xrdcl_error *error, const XrdCl::XRootDStatus &status);
int32_t missing(dray_xrdcl_error *error);
int32_t answered(const std::string &text, char *answer, uint32_t answer_bytes, dray_xrdcl_error *error);
int32_t ask(const char *url, XrdCl::QueryCode::Code code, const char *what, char *answer,
            uint32_t answer_bytes, dray_xrdcl_error *error);
void fill(const XrdCl::StatInfo &from, dray_xrdcl_state *state);

// The type of a time differs between versions; no call waits longer than the limit.
inline uint16_t limit_of(uint32_t seconds)
{
	return static_cast<uint16_t>(std::min<uint32_t>(seconds, 3600));
}

// Returns 0, or -1 with the error.
inline int32_t done(dray_xrdcl_error *error, const XrdCl::XRootDStatus &status)
{
	return status.IsOK() ? 0 : fail(error, status);
}

// Catches all exceptions of XrdCl and of the C++ library.
template <typename Call> auto guarded(dray_xrdcl_error *error, Call call) noexcept -> decltype(call())
{
	try {
		return call();
	} catch (const std::exception &caught) {
		return fail(error, DRAY_XRDCL_INTERNAL, caught.what());
	} catch (...) {
		return fail(error, DRAY_XRDCL_INTERNAL, "the XRootD client threw something");
	}
}

// An answer allocated by XrdCl, which the caller must free.
template <typename Info> struct Answer {
	Info *info = nullptr;
	~Answer() { delete info; }
};

} // namespace dray

#endif
