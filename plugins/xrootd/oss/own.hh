// Names that are dray's own, which clients do not get to see.
#pragma once

#include <XrdOss/XrdOssWrapper.hh>

#include <memory>

class XrdOucEnv;

namespace dray {

// Whether a name is dray's own.
bool is_own_name(const char *name);

// Whether a path is of dray's own names, or lies in a folder of them, and a client asks that is not dray's.
// The server itself, which sums a file say, asks for no client.
bool is_kept_from(const char *path, XrdOucEnv *env);

// A folder without dray's own names.
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
