// A client's COPY request, as defined by the WLCG profile of HTTP third-party copies.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace dray {

// Exception for a request that is refused before any data is moved. It has an HTTP status, and a
// reason as one line.
struct Refusal : std::runtime_error {
	Refusal(int status, const std::string &why) : std::runtime_error(why), status(status) {}
	int status;
};

struct CopyRequest {
	// True if this server fetches the file (header Source), false if it sends the file (header
	// Destination).
	bool is_pull = true;
	// URL of the other end.
	std::string url;
	// Headers to send with each request to the other end.
	std::vector<std::pair<std::string, std::string>> headers;
	// Number of connections; 0 for the default of the program.
	int streams = 0;
	bool may_overwrite = true;
	// "required", "offered" (compare if the other end has a checksum) or "none".
	std::string checksum = "offered";
	// True if the local name belongs to an empty file that the server created for this copy.
	bool has_placeholder = true;
	// Value of the client's header Repr-Digest (RFC 9530), which contains the checksum of the file.
	std::string repr_digest;
};

// Parses the headers of a COPY request. Throws Refusal.
CopyRequest read_request(const std::map<std::string, std::string> &headers);

// Returns the request as one line of JSON for the program dray-xrootd-tpc. Throws Refusal if the
// request contains bytes that JSON cannot represent.
std::string to_line(const CopyRequest &request, const std::string &path);

} // namespace dray
