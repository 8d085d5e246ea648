// Finds the path of an open file of the server. A program that opens the file itself needs the
// path.
#pragma once

#include <sys/stat.h>

#include <string>

namespace dray {

// Returns true if both values are the state of the same file.
bool is_same(const struct stat &one, const struct stat &other);

// Returns the system's path of the open file descriptor `file`, and the state of the file. The path
// of an unlinked file ends with " (deleted)". Returns an empty path if `file` is not a regular
// file.
std::string place_of(int file, struct stat &opened);

// Returns the path of the open file descriptor `file` without symbolic links, and the state of the
// file. Returns an empty path if `file` is not a regular file. Also returns an empty path if the
// file has lost its name, because another file may have that name now.
std::string path_of(int file, struct stat &opened);

} // namespace dray
