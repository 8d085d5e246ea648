#include "copy.hh"

#include "child.hh"
#include "lines.hh"

#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <iterator>

extern char **environ;

namespace dray {

namespace {

using clock = std::chrono::steady_clock;

// Seconds within which the program must read its request. After this time the copy fails.
constexpr int request_seconds = 30;

// The latest state that the program has reported.
struct Told {
	long long bytes_durable = 0;
	std::string remote;
	bool has_ended = false;
	std::string failure;
};

// Processes one line of the program's output. Ignores unknown lines.
void take(const std::string &line, Told &told)
{
	auto read = nlohmann::json::parse(line, nullptr, false);
	if (!read.is_object())
		return;
	auto progress = read.find("progress");
	if (progress != read.end() && progress->is_object()) {
		auto bytes = progress->find("bytes_durable");
		if (bytes != progress->end() && bytes->is_number_integer())
			told.bytes_durable = bytes->get<long long>();
		auto remote = progress->find("remote");
		if (remote != progress->end() && remote->is_string())
			told.remote = remote->get<std::string>();
	}
	auto end = read.find("end");
	if (end != read.end() && end->is_object()) {
		auto ok = end->find("ok");
		told.has_ended = true;
		if (ok != end->end() && ok->is_boolean() && ok->get<bool>())
			return;
		auto error = end->find("error");
		bool is_said = error != end->end() && error->is_string();
		told.failure = is_said ? error->get<std::string>() : "";
		if (told.failure.empty())
			told.failure = "the program gave no reason";
	}
}

std::string marker(const Told &told)
{
	std::string text = "Perf Marker\nTimestamp: " + std::to_string(std::time(nullptr)) +
			   "\nStripe Index: 0\nStripe Bytes Transferred: " +
			   std::to_string(told.bytes_durable) + "\nTotal Stripe Count: 1\n";
	if (!told.remote.empty())
		text += "RemoteConnections: " + one_line(told.remote) + "\n";
	return text + "End\n";
}

std::vector<std::string> environment(const std::string &authorities)
{
	std::vector<std::string> list;
	bool has_authorities = false;
	// Variables with the server's own credentials. Remove them, because the other end must get only
	// the client's credentials.
	static const char *const own[] = {"BEARER_TOKEN", "X509_USER_", "XrdSec", "KRB5"};
	for (char **entry = environ; *entry; ++entry) {
		std::string text = *entry;
		auto begins = [&](const char *name) { return text.rfind(name, 0) == 0; };
		if (std::any_of(std::begin(own), std::end(own), begins))
			continue;
		has_authorities = has_authorities || text.rfind("X509_CERT_DIR=", 0) == 0;
		list.push_back(text);
	}
	if (!has_authorities && !authorities.empty())
		list.push_back("X509_CERT_DIR=" + authorities);
	return list;
}

} // namespace

Outcome copy(const Settings &settings, const CopyRequest &request, const std::string &path,
	     const std::string &authorities, int client, const Send &send)
{
	std::string line = to_line(request, path);
	std::vector<std::string> words = {settings.program, "--request"};
	if (!settings.config.empty())
		words.insert(words.end(), {"--config", settings.config});
	Child child(words, environment(authorities));
	Outcome outcome;
	Told told;
	auto is_gone = [&](const std::string &text) {
		outcome.is_client_gone = outcome.is_client_gone || !send(text);
		return outcome.is_client_gone;
	};
	if (is_gone(marker(told)))
		return outcome;
	if (!child.tell(line, request_seconds)) {
		outcome.failure = "the program of the copy " + child.ended() + " before it had read its request";
		return outcome;
	}
	auto next_marker = clock::now() + std::chrono::seconds(settings.marker_seconds);
	auto silence = std::chrono::seconds(settings.silence_seconds);
	auto silent_until = clock::now() + silence;
	for (bool is_open = true; is_open && !told.has_ended;) {
		if (clock::now() >= silent_until) {
			outcome.failure = "the program of the copy has reported nothing for " +
					  std::to_string(settings.silence_seconds) + " s";
			return outcome;
		}
		auto next = std::min(next_marker, silent_until);
		auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - clock::now());
		if (clock::now() >= next_marker) {
			if (is_gone(marker(told)))
				return outcome;
			next_marker += std::chrono::seconds(settings.marker_seconds);
			continue;
		}
		pollfd waits[] = {{child.said(), POLLIN, 0}, {client, POLLRDHUP, 0}};
		int pause = static_cast<int>(std::max<long long>(left.count(), 0)) + 1;
		poll(waits, client >= 0 ? 2 : 1, pause);
		if (client >= 0 && (waits[1].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
			outcome.is_client_gone = true;
			return outcome;
		}
		if ((waits[0].revents & (POLLIN | POLLHUP | POLLERR)) == 0)
			continue;
		is_open = child.hear();
		silent_until = clock::now() + silence;
		for (std::string said; child.next(said);)
			take(said, told);
	}
	if (!told.has_ended)
		outcome.failure = "the program of the copy " + child.ended();
	else
		outcome.failure = told.failure;
	if (outcome.failure.empty())
		is_gone(marker(told));
	return outcome;
}

} // namespace dray
