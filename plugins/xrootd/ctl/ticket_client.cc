#include "ticket_client.hh"

#include "lines.hh"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>
#include <vector>

namespace dray {

namespace {

constexpr const char *meant = "dray ticket ";
// Maximum number of concurrent requests. Each request occupies a thread of the server. The value is
// estimated, not measured.
constexpr int under_way_max = 16;
// Seconds without requests after the endpoint did not answer. Otherwise each request would wait for
// the endpoint.
constexpr long long away_seconds = 5;
constexpr size_t transfer_letters_max = 64;
constexpr size_t key_letters = 64;

long long now_seconds()
{
	auto since = std::chrono::steady_clock::now().time_since_epoch();
	return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

bool is_of(const std::string &text, const char *letters)
{
	return text.find_first_not_of(letters) == std::string::npos;
}

// Returns a path in the text form of the endpoint's API. The path must be valid UTF-8.
std::string escaped(const std::string &path)
{
	std::string text;
	for (char c : path)
		text += c == '%' ? "%25" : std::string(1, c);
	return text;
}

// Counts one concurrent request while it exists.
class Turn {
public:
	explicit Turn(std::atomic<int> &taken) : taken_(taken)
	{
		if (++taken_ > under_way_max) {
			--taken_;
			throw NoTicket(EIO, "the maximum number of requests is waiting for the endpoint");
		}
	}
	Turn(const Turn &) = delete;
	Turn &operator=(const Turn &) = delete;
	~Turn() { --taken_; }

private:
	std::atomic<int> &taken_;
};

std::string text_of(const nlohmann::json &json, const char *name)
{
	auto found = json.is_object() ? json.find(name) : json.end();
	return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// Returns the HTTP status and the body of an answer.
std::pair<std::string, nlohmann::json> read_answer(const std::string &answer)
{
	auto end = answer.find("\r\n\r\n");
	std::istringstream first(answer.substr(0, answer.find("\r\n")));
	std::string version, status;
	first >> version >> status;
	if (end == std::string::npos || version.rfind("HTTP/1.", 0) != 0)
		throw NoTicket(EIO, "the endpoint's answer is not HTTP");
	return {status, nlohmann::json::parse(answer.substr(end + 4), nullptr, false)};
}

} // namespace

bool is_meant(const std::string &words)
{
	return words.rfind(meant, 0) == 0;
}

Question read_question(const std::string &words)
{
	std::istringstream text(words.substr(std::strlen(meant)));
	std::string version, more;
	Question question;
	text >> version >> question.transfer >> question.peer_key;
	if (version != "1")
		throw NoTicket(EINVAL, "the request has another version than 1");
	const std::string &key = question.peer_key;
	bool is_good = !(text >> more) && !question.transfer.empty() &&
		       question.transfer.size() <= transfer_letters_max &&
		       is_of(question.transfer,
			     "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-") &&
		       key.rfind("sha256:", 0) == 0 && key.size() == key_letters + std::strlen("sha256:") &&
		       is_of(key.substr(std::strlen("sha256:")), "0123456789abcdef");
	if (!is_good)
		throw NoTicket(EINVAL, "the request is not of the form: dray ticket 1 TRANSFER sha256:HEX");
	return question;
}

TicketClient::TicketClient(const Settings &settings)
	: settings_(settings), peer_(settings.host, settings.port, settings.peer_key)
{
	// Read the token now, so that an invalid token is reported at start-up. It is read again for
	// each ticket, because tokens expire and are replaced.
	read_token(settings_.token_file);
}

std::string TicketClient::ticket(const Question &question, const std::string &path)
{
	if (now_seconds() < away_until_)
		throw NoTicket(EIO, "the endpoint did not answer a moment ago");
	Turn turn(under_way_);
	std::string answered;
	try {
		answered = call(question, path);
	} catch (const Unreached &error) {
		away_until_ = now_seconds() + away_seconds;
		throw NoTicket(EIO, std::string("cannot call the endpoint: ") + error.what());
	}
	auto [status, body] = read_answer(answered);
	if (status != "201") {
		auto error = body.is_object() ? body.find("error") : body.end();
		std::string cause = error != body.end() ? text_of(*error, "cause") : "";
		throw NoTicket(EIO, "the endpoint answers " + status + ": " + cause);
	}
	nlohmann::json given = {{"path", path}};
	for (const char *name : {"address", "key", "ticket"}) {
		given[name] = text_of(body, name);
		if (given[name] == "")
			throw NoTicket(EIO, std::string("the endpoint's ticket has no ") + name);
	}
	return given.dump();
}

std::string TicketClient::call(const Question &question, const std::string &path) const
{
	std::string token, body;
	try {
		token = read_token(settings_.token_file);
	} catch (const std::runtime_error &error) {
		throw NoTicket(EIO, error.what());
	}
	try {
		body = nlohmann::json({
				{"transfer", question.transfer},
				{"direction", "read"},
				{"paths", {escaped(path)}},
				{"peer_key", question.peer_key},
				{"lifetime_seconds", settings_.lifetime_seconds},
				{"renewable_seconds", settings_.renewable_seconds},
			}).dump();
	} catch (const nlohmann::json::exception &) {
		throw NoTicket(ENOENT, "the file name is not UTF-8");
	}
	// Use HTTP 1.0. The answer is then not chunked, and it ends when the connection ends.
	std::string head = "POST /v1/tickets HTTP/1.0\r\nHost: " + settings_.host + ":" + settings_.port +
			   "\r\nAuthorization: Bearer " + token +
			   "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
			   "\r\n\r\n";
	return peer_.exchange(head + body, settings_.wait_seconds);
}

} // namespace dray
