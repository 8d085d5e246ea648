// Names that the storage wrapper and the plug-ins use to communicate.
#pragma once

namespace dray {

// URL parameter with which dray's HTTP copies open their destination. If a URL has this parameter,
// the storage wrapper hides the placeholder, as it does for `root://` copies.
constexpr const char *http_copy = "dray.copy";

// Prefix of the name of a copy's placeholder. The server's process id and a number follow the
// prefix. The name is deleted as soon as the placeholder is open.
constexpr const char *nameless = ".dray-tpc-";

// Prefix of dray's own names: partial files, logs and the placeholders of copies.
constexpr const char *own_prefix = ".dray-";

// URL parameter with which dray's own client requests a file whose name begins with `own_prefix`
// (`OWN` in dray-store-xrootd).
constexpr const char *own_call = "dray.own";

} // namespace dray
