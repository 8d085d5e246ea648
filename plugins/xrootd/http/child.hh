// The program of one copy. This class starts the program, reads its output, and always ends it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace dray {

class Child {
public:
	// Starts the program `words` in its own process group. In the program, no signal is blocked or
	// ignored, and the only open file of the server is the log. Throws std::system_error.
	Child(const std::vector<std::string> &words, const std::vector<std::string> &environment);
	Child(const Child &) = delete;
	Child &operator=(const Child &) = delete;
	// Kills the whole process group if it still runs.
	~Child();

	// Writes all of `text` to the program's input. Returns false if the program does not read
	// all of it within `seconds`. The input stays open until the server ends, so the program
	// can notice the end of the server.
	bool tell(const std::string &text, int seconds);

	// Returns the file descriptor of the program's output, for use with poll.
	int said() const { return out_; }

	// Reads the available output. Returns false at the end of the output. `next` then returns
	// complete lines.
	bool hear();

	// Stores the next complete line in `line`. Returns false if no complete line is available.
	// Skips lines that are too long.
	bool next(std::string &line);

	// Waits at most 2 s for the program to end. Then kills the processes of its process group that
	// still run. Returns a description of the program's exit status.
	std::string ended();

private:
	void stop();

	pid_t pid_ = -1;
	int in_ = -1;
	int out_ = -1;
	std::string heard_;
	bool is_too_long_ = false;
};

} // namespace dray
