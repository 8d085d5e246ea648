#include "own.hh"

#include "hidden.hh"

#include <XrdOss/XrdOss.hh>
#include <XrdOuc/XrdOucEnv.hh>

#include <cerrno>
#include <cstring>
#include <utility>

namespace dray {

bool is_own_name(const char *name)
{
	return std::strncmp(name, own_prefix, std::strlen(own_prefix)) == 0;
}

bool is_kept_from(const char *path, XrdOucEnv *env)
{
	bool is_own = path && is_own_name(path);
	for (const char *at = path; at && !is_own; at = std::strchr(at, '/')) {
		at += *at == '/';
		is_own = is_own_name(at);
	}
	return is_own && env && env->secEnv() && !env->Get(own_call);
}

Folder::Folder(std::unique_ptr<XrdOssDF> inner) : XrdOssWrapDF(*inner), folder(std::move(inner))
{
	dfType = folder->DFType();
	tident = folder->getTID();
}

int Folder::Opendir(const char *path, XrdOucEnv &env)
{
	if (is_kept_from(path, &env))
		return -ENOENT;
	shows_all = env.Get(own_call) != nullptr;
	return folder->Opendir(path, env);
}

int Folder::Readdir(char *name, int size)
{
	int code;
	do
		code = folder->Readdir(name, size);
	while (code == XrdOssOK && !shows_all && size > 0 && is_own_name(name));
	return code;
}

} // namespace dray
