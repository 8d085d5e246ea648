// The program that carries one copy: started, listened to, and never left behind.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace dray {

class Child {
public:
	// Starts `words` in a process group of its own, with no signal blocked or ignored and no file of
	// the server's but the log. Throws std::system_error.
	Child(const std::vector<std::string> &words, const std::vector<std::string> &environment);
	Child(const Child &) = delete;
	Child &operator=(const Child &) = delete;
	// Kills the whole group, if it still runs.
	~Child();

	// Writes all of `text` to it, within `seconds`; false when it does not take it. What it reads
	// from stays open: its end tells the program that the server is gone.
	bool tell(const std::string &text, int seconds);

	// Where it can be waited for lines.
	int said() const { return out_; }

	// Takes what it has said so far; false at the end. Then `next` gives whole lines.
	bool hear();

	// The next whole line; false when there is none yet. A line that is too long is passed over.
	bool next(std::string &line);

	// Waits for its end and says how it ended, in words.
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
