// What the wrapper of the storage and those who open files through it agree on.
#pragma once

namespace dray {

// The parameter by which dray's HTTP copies open their destination, to be hidden as those of `root://`.
constexpr const char *http_copy = "dray.copy";

// How the name begins of a file that stands in for a copy's, before the server's process and a number. It
// loses that name as soon as it is open.
constexpr const char *nameless = ".dray-tpc-";

// Prefix of dray's own names: partial files, logs, and placeholders of copies.
constexpr const char *own_prefix = ".dray-";

// The parameter by which dray's own client names such a file (`OWN` of dray-store-xrootd).
constexpr const char *own_call = "dray.own";

} // namespace dray
