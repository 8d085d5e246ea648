// What differs between the XRootD versions that this compiles against: 5.5 and later, 6.x.
#pragma once

#include <XrdVersion.hh>

namespace dray {

#if XrdVNUMBER < 60000 || XrdVNUMBER == XrdVNUMUNK
// What stock servers up to 5.x answer to a copy that has begun.
constexpr int status_begun = 201;
#else
constexpr int status_begun = 202;
#endif

} // namespace dray
