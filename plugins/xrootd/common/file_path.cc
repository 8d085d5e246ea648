#include "file_path.hh"

#include <unistd.h>

#include <climits>

namespace dray {

bool is_same(const struct stat &one, const struct stat &other)
{
	return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

std::string place_of(int file, struct stat &opened)
{
	char path[PATH_MAX];
	std::string link = "/proc/self/fd/" + std::to_string(file);
	ssize_t length = file < 0 ? -1 : readlink(link.c_str(), path, sizeof path);
	if (length <= 0 || length >= static_cast<ssize_t>(sizeof path))
		return "";
	bool is_file = fstat(file, &opened) == 0 && S_ISREG(opened.st_mode);
	return is_file ? std::string(path, static_cast<size_t>(length)) : "";
}

std::string path_of(int file, struct stat &opened)
{
	std::string found = place_of(file, opened);
	struct stat named;
	bool is_it = !found.empty() && stat(found.c_str(), &named) == 0 && is_same(named, opened);
	return is_it ? found : "";
}

} // namespace dray
