// Differences between the XRootD versions that this code compiles against: 5.5 and later, 6.x.
#pragma once

#include <XrdVersion.hh>

namespace dray {

#if XrdVNUMBER < 60000 || XrdVNUMBER == XrdVNUMUNK
// Status with which stock servers up to 5.x answer a copy that has begun.
constexpr int status_begun = 201;
#else
constexpr int status_begun = 202;
#endif

} // namespace dray
