// Where an open file of the server lies for a program that opens it by itself.
#pragma once

#include <sys/stat.h>

#include <string>

namespace dray {

// Whether both are one file.
bool is_same(const struct stat &one, const struct stat &other);

// What the system calls the place of what is open as `file`, and its state; " (deleted)" stands behind
// the name of a file that has none any more. Empty when that is no regular file.
std::string place_of(int file, struct stat &opened);

// The name of what is open as `file`, without links on the way, and its state. Empty when that is no
// regular file, or no longer has a name: then another file may have it.
std::string path_of(int file, struct stat &opened);

} // namespace dray
