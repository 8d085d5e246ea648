// What a client asks for by COPY (WLCG's profile of HTTP third-party copies), read once.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace dray {

// A refusal before anything moved: a status and one line.
struct Refusal : std::runtime_error {
	Refusal(int status, const std::string &why) : std::runtime_error(why), status(status) {}
	int status;
};

struct CopyRequest {
	// Whether this server fetches (Source), or sends (Destination).
	bool is_pull = true;
	// The other end.
	std::string url;
	// What goes to the other end with each request.
	std::vector<std::pair<std::string, std::string>> headers;
	// Connections; 0: as many as the program thinks good.
	int streams = 0;
	bool may_overwrite = true;
	// "required", "offered" (compared where the other end tells one) or "none".
	std::string checksum = "offered";
	// Whether what has the local file's name is an empty file of the server, made for this copy.
	bool has_placeholder = true;
};

// Reads the headers of a COPY; throws Refusal.
CopyRequest read_request(const std::map<std::string, std::string> &headers);

// The request as the program reads it: one line of JSON. Throws Refusal for bytes that JSON cannot
// hold.
std::string to_line(const CopyRequest &request, const std::string &path);

} // namespace dray
