#include "request.hh"

#include <nlohmann/json.hpp>
#include <strings.h>

#include <algorithm>

namespace dray {

namespace {

// Maximum number of connections. If a client requests more, this number is used.
constexpr int streams_max = 64;
// Maximum length in bytes of the request that this plug-in sends to the copy program. The server's
// limit on the head of an HTTP request is far lower.
constexpr size_t line_bytes_max = 1 << 20;

bool is_same(const std::string &one, const char *other)
{
	return strcasecmp(one.c_str(), other) == 0;
}

bool begins(const std::string &text, const char *head)
{
	return strncasecmp(text.c_str(), head, std::string(head).size()) == 0;
}

std::string trimmed(const std::string &text)
{
	auto first = text.find_first_not_of(" \t\r\n");
	if (first == std::string::npos)
		return "";
	return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

bool truth(const std::string &name, const std::string &value)
{
	if (is_same(value, "t") || is_same(value, "true"))
		return true;
	if (is_same(value, "f") || is_same(value, "false"))
		return false;
	throw Refusal(400, name + " is neither T nor F");
}

int streams(const std::string &value)
{
	bool is_number = !value.empty() && value.size() < 7 &&
			 std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
	if (!is_number)
		throw Refusal(400, "X-Number-Of-Streams is not a number");
	// gfal sends 0 if its user did not set a number.
	return std::min(std::stoi(value), streams_max);
}

} // namespace

CopyRequest read_request(const std::map<std::string, std::string> &headers)
{
	CopyRequest request;
	std::string source, destination;
	for (const auto &[name, raw] : headers) {
		std::string value = trimmed(raw);
		if (is_same(name, "source"))
			source = value;
		else if (is_same(name, "destination"))
			destination = value;
		else if (is_same(name, "overwrite"))
			request.may_overwrite = truth("Overwrite", value);
		else if (is_same(name, "x-number-of-streams"))
			request.streams = streams(value);
		else if (is_same(name, "requirechecksumverification"))
			request.checksum = truth("RequireChecksumVerification", value) ? "required" : "none";
		else if (is_same(name, "repr-digest"))
			request.repr_digest = value;
		else if (is_same(name, "credential") && !value.empty() && !is_same(value, "none"))
			throw Refusal(400, "Credential must be none; send the other end's token as TransferHeaderAuthorization");
		else if (begins(name, "transferheader") && name.size() > 14)
			request.headers.emplace_back(name.substr(14), value);
	}
	if (source.empty() == destination.empty())
		throw Refusal(400, "a COPY needs either Source or Destination");
	request.is_pull = !source.empty();
	request.url = request.is_pull ? source : destination;
	bool is_known = false;
	for (const char *scheme : {"http://", "https://", "dav://", "davs://"})
		is_known = is_known || begins(request.url, scheme);
	if (!is_known)
		throw Refusal(400, "Source or Destination is not the address of a web server (https://HOST/PATH)");
	return request;
}

std::string to_line(const CopyRequest &request, const std::string &path)
{
	nlohmann::json line = {
		{"version", 1},
		{"direction", request.is_pull ? "pull" : "push"},
		{"url", request.url},
		{"path", path},
		{"headers", request.headers},
		{"streams", request.streams},
		{"overwrite", request.may_overwrite},
		{"checksum", request.checksum},
		{"placeholder", request.has_placeholder},
		{"repr_digest", request.repr_digest},
	};
	std::string text;
	try {
		text = line.dump() + "\n";
	} catch (const nlohmann::json::exception &) {
		throw Refusal(400, "a path or header is not UTF-8");
	}
	if (text.size() > line_bytes_max)
		throw Refusal(431, "the headers are too long");
	return text;
}

} // namespace dray
