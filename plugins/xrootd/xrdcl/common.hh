// What all parts of this library share: see dray_xrdcl.h.
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

// Everything else of this library is hidden, by -fvisibility=hidden.
#define DRAY_EXPORT __attribute__((visibility("default")))

struct dray_xrdcl_file {
	// false: client plug-ins of the host are not asked; one of ours would come round in a circle.
	XrdCl::File file{false};
	// Whether other servers have it too: nobody waits for this one.
	bool is_replica = false;
};

namespace dray {

// How long a change of names and attributes is tried, in seconds. After a lost connection XrdCl asks again by
// itself: whoever takes over meanwhile has to wait until it does not.
const uint16_t CHANGE_SECONDS = 15;

int32_t fail(dray_xrdcl_error *error, int32_t kind, const char *words);
int32_t fail(dray_xrdcl_error *error, const XrdCl::XRootDStatus &status);
int32_t missing(dray_xrdcl_error *error);
int32_t answered(const std::string &text, char *answer, uint32_t answer_bytes, dray_xrdcl_error *error);
int32_t ask(const char *url, XrdCl::QueryCode::Code code, const char *what, char *answer,
            uint32_t answer_bytes, dray_xrdcl_error *error);
void fill(const XrdCl::StatInfo &from, dray_xrdcl_state *state);

// The type of a time differs between versions; no call waits for so long that it matters.
inline uint16_t limit_of(uint32_t seconds)
{
	return static_cast<uint16_t>(std::min<uint32_t>(seconds, 3600));
}

// 0, or why not.
inline int32_t done(dray_xrdcl_error *error, const XrdCl::XRootDStatus &status)
{
	return status.IsOK() ? 0 : fail(error, status);
}

// Nothing that XrdCl or the library of C++ throws goes further.
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

// XrdCl gives out what it answers; it is ours then.
template <typename Info> struct Answer {
	Info *info = nullptr;
	~Answer() { delete info; }
};

} // namespace dray

#endif
