// The program of one copy: starts it, reads its output, and always ends it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace dray {

class Child {
public:
	// Starts `words` in a process group of its own, with no signal blocked or ignored and none of
	// the server's files open except the log. Throws std::system_error.
	Child(const std::vector<std::string> &words, const std::vector<std::string> &environment);
	Child(const Child &) = delete;
	Child &operator=(const Child &) = delete;
	// Kills the whole group, if it still runs.
	~Child();

	// Writes all of `text` to the program's input within `seconds`; returns false if it does not
	// accept it. The input stays open: its end tells the program that the server has ended.
	bool tell(const std::string &text, int seconds);

	// Returns the descriptor of the program's output, for poll.
	int said() const { return out_; }

	// Reads the available output; returns false at the end. Then `next` returns whole lines.
	bool hear();

	// Returns the next whole line; false if there is none yet. Skips a line that is too long.
	bool next(std::string &line);

	// Waits for the program's end and returns a description of it.
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
