// Finds the path of an open file of the server, for a program that opens it itself.
#pragma once

#include <sys/stat.h>

#include <string>

namespace dray {

// Returns true if both are one file.
bool is_same(const struct stat &one, const struct stat &other);

// Returns the system's path of the file open as `file`, and its state. The path of an unlinked file
// ends with " (deleted)". Empty if it is no regular file.
std::string place_of(int file, struct stat &opened);

// Returns the path of the file open as `file`, without links, and its state. Empty if it is no
// regular file, or no longer has a name: then another file may have that name.
std::string path_of(int file, struct stat &opened);

} // namespace dray
