// Hides dray's own names from clients.
#pragma once

#include <XrdOss/XrdOssWrapper.hh>

#include <memory>

class XrdOucEnv;

namespace dray {

// Returns true if a name is dray's own.
bool is_own_name(const char *name);

// Returns true if a path is hidden from this caller: it has one of dray's own names or lies in such
// a folder, and the caller is a client other than dray. Calls of the server itself (for a checksum,
// say) have no client.
bool is_kept_from(const char *path, XrdOucEnv *env);

// A folder listing without dray's own names.
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
