// The paths a client may name. The server's own protocol checks them before it opens a file, but an
// HTTP handler gets any path. The server's file system, its authorisation and its storage do not
// check it: rights depend on the prefix of a path, and `..` leads anywhere.
#pragma once

#include <string>
#include <vector>

namespace dray {

class Exports {
public:
	// Parses the server's list: prefixes of paths, separated by blanks.
	explicit Exports(const std::string &told);

	// Returns true if an exported prefix contains `path`, and the path has no `.` or `..`.
	bool reach(const std::string &path) const;

private:
	std::vector<std::string> beginnings_;
};

} // namespace dray
