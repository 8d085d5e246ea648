#include "child.hh"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

namespace dray {

namespace {

// Maximum length of a line in bytes. A progress line has about a hundred bytes, and an error a few
// hundred.
constexpr size_t line_bytes_max = 64 * 1024;

// Number and length of waits for the end of a program that has closed its output: 200 times 10 ms.
constexpr int ending_tries = 200;
constexpr int ending_milliseconds = 10;

[[noreturn]] void fail(int error, const char *what)
{
	throw std::system_error(error, std::generic_category(), what);
}

// Arguments of posix_spawn. The destructor frees them.
struct Plan {
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;

	Plan()
	{
		posix_spawn_file_actions_init(&files);
		posix_spawnattr_init(&attributes);
	}
	~Plan()
	{
		posix_spawn_file_actions_destroy(&files);
		posix_spawnattr_destroy(&attributes);
	}
};

std::vector<char *> pointers(const std::vector<std::string> &words)
{
	std::vector<char *> list;
	for (const auto &word : words)
		list.push_back(const_cast<char *>(word.c_str()));
	list.push_back(nullptr);
	return list;
}

} // namespace

Child::Child(const std::vector<std::string> &words, const std::vector<std::string> &environment)
{
	int in[2], out[2];
	// Use a socket, because a write to a pipe whose reader has ended would raise a signal in the
	// server.
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0)
		fail(errno, "make a socket");
	if (pipe2(out, O_CLOEXEC) != 0) {
		int error = errno;
		close(in[0]);
		close(in[1]);
		fail(error, "make a pipe");
	}
	in_ = in[0];
	out_ = out[0];
	Plan plan;
	sigset_t none, all;
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_setflags(&plan.attributes,
				 POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setpgroup(&plan.attributes, 0);
	posix_spawnattr_setsigmask(&plan.attributes, &none);
	posix_spawnattr_setsigdefault(&plan.attributes, &all);
	posix_spawn_file_actions_adddup2(&plan.files, in[1], 0);
	posix_spawn_file_actions_adddup2(&plan.files, out[1], 1);
	// Close all inherited files, because some files of the server have no close-on-exec flag.
	posix_spawn_file_actions_addclosefrom_np(&plan.files, 3);
	int error = posix_spawn(&pid_, words.at(0).c_str(), &plan.files, &plan.attributes,
				pointers(words).data(), pointers(environment).data());
	close(in[1]);
	close(out[1]);
	if (error != 0) {
		pid_ = -1;
		stop();
		fail(error, words[0].c_str());
	}
	fcntl(out_, F_SETFL, O_NONBLOCK);
	fcntl(in_, F_SETFL, O_NONBLOCK);
}

Child::~Child()
{
	stop();
}

void Child::stop()
{
	if (pid_ > 0) {
		kill(-pid_, SIGKILL);
		while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR)
			;
		pid_ = -1;
	}
	for (int *file : {&in_, &out_}) {
		if (*file >= 0)
			close(*file);
		*file = -1;
	}
}

bool Child::tell(const std::string &text, int seconds)
{
	using clock = std::chrono::steady_clock;
	auto until = clock::now() + std::chrono::seconds(seconds);
	size_t sent = 0;
	while (sent < text.size()) {
		ssize_t count = send(in_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
		if (count >= 0) {
			sent += static_cast<size_t>(count);
			continue;
		}
		if (errno == EINTR)
			continue;
		auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - clock::now());
		if (errno != EAGAIN || left.count() <= 0)
			return false;
		pollfd room = {in_, POLLOUT, 0};
		poll(&room, 1, static_cast<int>(left.count()));
	}
	return true;
}

bool Child::hear()
{
	char buffer[4096];
	for (;;) {
		ssize_t count = read(out_, buffer, sizeof buffer);
		if (count == 0)
			return false;
		if (count < 0)
			return errno == EAGAIN || errno == EINTR;
		heard_.append(buffer, static_cast<size_t>(count));
		if (heard_.size() > line_bytes_max && heard_.find('\n') == std::string::npos) {
			heard_.clear();
			is_too_long_ = true;
		}
		if (heard_.size() > line_bytes_max)
			return true;
	}
}

bool Child::next(std::string &line)
{
	for (;;) {
		auto end = heard_.find('\n');
		if (end == std::string::npos)
			return false;
		line = heard_.substr(0, end);
		heard_.erase(0, end + 1);
		if (!is_too_long_)
			return true;
		is_too_long_ = false;
	}
}

std::string Child::ended()
{
	int status = 0;
	pid_t waited;
	// WNOWAIT leaves the ended program as a zombie, so no other process can get its number.
	siginfo_t seen = {};
	for (int tries = 0; tries < ending_tries; ++tries) {
		if (waitid(P_PID, static_cast<id_t>(pid_), &seen, WEXITED | WNOHANG | WNOWAIT) != 0 ||
		    seen.si_pid == pid_)
			break;
		poll(nullptr, 0, ending_milliseconds);
	}
	// Kill the other processes of the program's process group.
	kill(-pid_, SIGKILL);
	while ((waited = waitpid(pid_, &status, 0)) < 0 && errno == EINTR)
		;
	pid_ = -1;
	if (waited < 0)
		return "ended with an unknown status";
	if (WIFSIGNALED(status))
		return "was ended by signal " + std::to_string(WTERMSIG(status));
	return "ended with code " + std::to_string(WEXITSTATUS(status));
}

} // namespace dray
