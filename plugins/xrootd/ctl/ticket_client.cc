#include "ticket_client.hh"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <sstream>

namespace dray {

namespace {

constexpr const char *meant = "dray ticket ";
// Maximum length of an answer in bytes. An answer with a ticket, or with an error, has a few
// kilobytes.
constexpr size_t answer_bytes_max = 64 * 1024;
constexpr size_t transfer_letters_max = 64;
constexpr size_t key_letters = 64;

bool is_of(const std::string &text, const char *letters)
{
	return text.find_first_not_of(letters) == std::string::npos;
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
		throw NoTicket(EINVAL, "the version of the request is not 1");
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

TicketClient::TicketClient(const Settings &settings) : settings_(settings), client_(settings)
{
	// Read the token now, so that an invalid token is reported at start-up. It is read again for
	// each ticket, because tokens expire and are replaced.
	read_token(settings_.token_file);
}

std::string TicketClient::ticket(const Question &question, const std::string &path)
{
	Answer answer;
	try {
		answer = call(question, path);
	} catch (const NoAnswer &error) {
		throw NoTicket(EIO, error.what());
	}
	if (answer.status != "201")
		throw NoTicket(EIO, "the endpoint answers " + answer.status + ": " + answer.cause());
	nlohmann::json given = {{"path", path}};
	for (const char *name : {"address", "key", "ticket"}) {
		given[name] = text_of(answer.body, name);
		if (given[name] == "")
			throw NoTicket(EIO, std::string("the endpoint's ticket has no ") + name);
	}
	return given.dump();
}

Answer TicketClient::call(const Question &question, const std::string &path)
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
	return client_.call("POST", "/v1/tickets", token, body, answer_bytes_max);
}

} // namespace dray
