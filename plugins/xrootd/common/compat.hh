// The only differences between the XRootD versions with which the plug-ins compile: 5.5 and 6.2.
#pragma once

#include <XrdVersion.hh>

namespace dray {

#if XrdVNUMBER < 60000 || XrdVNUMBER == XrdVNUMUNK
// HTTP status with which unmodified servers up to version 5.x answer when a copy has begun.
constexpr int status_begun = 201;
#else
constexpr int status_begun = 202;
#endif

} // namespace dray
