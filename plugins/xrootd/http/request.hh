// A client's COPY request (WLCG's profile of HTTP third-party copies), parsed once.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace dray {

// A refusal before any data moved: a status and one line.
struct Refusal : std::runtime_error {
	Refusal(int status, const std::string &why) : std::runtime_error(why), status(status) {}
	int status;
};

struct CopyRequest {
	// True if this server fetches the file (Source), false if it sends it (Destination).
	bool is_pull = true;
	// URL of the other end.
	std::string url;
	// Headers of each request to the other end.
	std::vector<std::pair<std::string, std::string>> headers;
	// Number of connections; 0 for the program's default.
	int streams = 0;
	bool may_overwrite = true;
	// "required", "offered" (compared if the other end has a checksum) or "none".
	std::string checksum = "offered";
	// True if the local name belongs to an empty file that the server made for this copy.
	bool has_placeholder = true;
};

// Parses the headers of a COPY; throws Refusal.
CopyRequest read_request(const std::map<std::string, std::string> &headers);

// Returns the request in the program's format: one line of JSON. Throws Refusal for bytes that JSON
// cannot represent.
std::string to_line(const CopyRequest &request, const std::string &path);

} // namespace dray
