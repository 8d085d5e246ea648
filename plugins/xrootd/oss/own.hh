// Hides dray's own names from clients.
#pragma once

#include <XrdOss/XrdOssWrapper.hh>

#include <memory>

class XrdOucEnv;

namespace dray {

// Returns true if `name` is one of dray's own names.
bool is_own_name(const char *name);

// Returns true if a path must be hidden from this caller. This is the case if the path is one of
// dray's own names or is in a folder with such a name, and the caller is a client other than dray.
// Calls of the server itself, for example for a checksum, have no client.
bool is_kept_from(const char *path, XrdOucEnv *env);

// A folder whose listing omits dray's own names.
class Folder final : public XrdOssWrapDF {
public:
	explicit Folder(std::unique_ptr<XrdOssDF> folder);

	int Opendir(const char *path, XrdOucEnv &env) override;
	int Readdir(char *name, int size) override;

private:
	std::unique_ptr<XrdOssDF> folder;
	bool shows_all = false;
};

} // namespace dray
