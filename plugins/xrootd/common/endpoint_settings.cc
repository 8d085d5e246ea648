#include "endpoint_settings.hh"

#include "lines.hh"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace dray {

namespace {

// Maximum length of a token in bytes. Most tokens have a few hundred bytes. Tokens that contain
// many groups have a few thousand.
constexpr size_t token_bytes_max = 65536;
constexpr const char *hex = "0123456789abcdef";

void split_address(const std::string &text, EndpointSettings &settings)
{
	auto colon = text.rfind(':');
	if (colon == std::string::npos || colon == 0)
		throw std::invalid_argument("no host or no port");
	settings.port = std::to_string(number(text.substr(colon + 1), 1, 65535));
	settings.host = text.substr(0, colon);
	if (settings.host.front() == '[' && settings.host.back() == ']')
		settings.host = settings.host.substr(1, settings.host.size() - 2);
}

std::string fingerprint(std::string text)
{
	if (text.rfind("sha256:", 0) != 0)
		throw std::invalid_argument("not sha256: and 64 hexadecimal digits");
	text.erase(0, std::strlen("sha256:"));
	for (char &c : text)
		c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
	if (text.size() != 64 || text.find_first_not_of(hex) != std::string::npos)
		throw std::invalid_argument("not sha256: and 64 hexadecimal digits");
	return text;
}

// Returns the path without symbolic links, for comparison with the file names that the kernel
// reports.
std::string without_links(const std::string &folder)
{
	char found[PATH_MAX];
	if (!realpath(folder.c_str(), found))
		throw std::runtime_error(folder + " is not a folder: " + std::strerror(errno));
	return found;
}

} // namespace

bool take_endpoint(const std::vector<std::string> &words, EndpointSettings &settings, int wait_most)
{
	const std::string &word = words[0];
	if (word == "root") {
		bool is_name = words.size() == 3 && words[1].find('/') == std::string::npos;
		if (is_name)
			settings.roots.emplace_back(words[1], words[2]);
		return is_name;
	}
	if (words.size() != 2)
		return false;
	const std::string &value = words[1];
	if (word == "endpoint")
		split_address(value, settings);
	else if (word == "peer_key")
		settings.peer_key = fingerprint(value);
	else if (word == "token_file" && value[0] == '/')
		settings.token_file = value;
	else if (word == "wait_seconds")
		settings.wait_seconds = number(value, 1, wait_most);
	else
		return false;
	return true;
}

void finish_endpoint(const std::string &path, EndpointSettings &settings)
{
	const std::pair<const char *, bool> needed[] = {
		{"endpoint HOST:PORT", !settings.host.empty()},
		{"peer_key sha256:HEX, which the endpoint prints when it starts", !settings.peer_key.empty()},
		{"token_file PATH", !settings.token_file.empty()},
		{"root NAME FOLDER", !settings.roots.empty()},
	};
	for (const auto &[line, is_there] : needed)
		if (!is_there)
			throw std::runtime_error(path + ": the settings need a line: " + line);
	for (auto &[name, folder] : settings.roots)
		folder = without_links(folder);
}

std::string escaped(const std::string &path)
{
	std::string text;
	for (char c : path)
		text += c == '%' ? "%25" : c == '?' ? "%3F" : c == '#' ? "%23" : std::string(1, c);
	return text;
}

std::string path_at_endpoint(const EndpointSettings &settings, const std::string &path)
{
	for (const auto &[name, folder] : settings.roots) {
		std::string inside = folder == "/" ? folder : folder + "/";
		if (path.rfind(inside, 0) == 0)
			return "/" + name + "/" + path.substr(inside.size());
	}
	return "";
}

std::string read_token(const std::string &path)
{
	std::string wrong = "the token file " + path;
	int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file < 0)
		throw std::runtime_error(wrong + " cannot be read: " + std::strerror(errno));
	struct stat state;
	std::string token(token_bytes_max + 1, '\0');
	bool is_file = fstat(file, &state) == 0 && S_ISREG(state.st_mode);
	ssize_t length = is_file ? read(file, token.data(), token.size()) : -1;
	close(file);
	if (!is_file || length < 0 || length > static_cast<ssize_t>(token_bytes_max))
		throw std::runtime_error(wrong + " is not a regular file with a token");
	if ((state.st_mode & 077) != 0 || (state.st_uid != geteuid() && state.st_uid != 0))
		throw std::runtime_error(wrong + " can be read by other users: run chmod 600 on it, and make the "
						 "server's user its owner");
	token.resize(static_cast<size_t>(length));
	auto last = token.find_last_not_of(" \t\r\n");
	token.erase(last == std::string::npos ? 0 : last + 1);
	token.erase(0, token.find_first_not_of(" \t\r\n"));
	for (char c : token)
		if (c <= 0x20 || c == 0x7f)
			throw std::runtime_error(wrong + " contains more than one token");
	if (token.empty())
		throw std::runtime_error(wrong + " is empty");
	return token;
}

} // namespace dray
