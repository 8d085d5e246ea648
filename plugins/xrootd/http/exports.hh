// Which paths a client may name. The server's own protocol sees to that before it opens a file; what takes
// requests of its own is handed whatever was asked for, and the server's file system, its authorisation and
// its storage do not look: rights go by the beginning of a path, and `..` leads anywhere.
#pragma once

#include <string>
#include <vector>

namespace dray {

class Exports {
public:
	// As the server tells them: the beginnings of paths, blanks between.
	explicit Exports(const std::string &told);

	// Whether `path` lies in one of them, without `.` or `..` on the way.
	bool reach(const std::string &path) const;

private:
	std::vector<std::string> beginnings_;
};

} // namespace dray
