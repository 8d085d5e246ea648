// Names shared by the storage wrapper and the code that opens files through it.
#pragma once

namespace dray {

// Parameter with which dray's HTTP copies open their destination, so that the wrapper hides it as
// for `root://` copies.
constexpr const char *http_copy = "dray.copy";

// Prefix of the name of a copy's placeholder; the server's process id and a number follow. The
// placeholder is unlinked as soon as it is open.
constexpr const char *nameless = ".dray-tpc-";

// Prefix of dray's own names: partial files, logs, and placeholders of copies.
constexpr const char *own_prefix = ".dray-";

// Parameter with which dray's own client requests such a file (`OWN` of dray-store-xrootd).
constexpr const char *own_call = "dray.own";

} // namespace dray
