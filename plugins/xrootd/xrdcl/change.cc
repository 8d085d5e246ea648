// Calls that change files on a server. dray_xrdcl.h describes them.

#include "common.hh"

#include <XrdCl/XrdClFileSystem.hh>
#include <XrdCl/XrdClURL.hh>

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

using namespace dray;

extern "C" {

DRAY_EXPORT int32_t dray_xrdcl_write(dray_xrdcl_file *file, uint64_t offset, const void *from,
                                     uint32_t bytes, int32_t pages, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		if (pages) {
			// The list of checksums is empty, so XrdCl computes the checksums.
			std::vector<uint32_t> sums;
			return done(error, file->file.PgWrite(offset, bytes, from, sums));
		}
		return done(error, file->file.Write(offset, bytes, from));
	});
}

DRAY_EXPORT int32_t dray_xrdcl_sync(dray_xrdcl_file *file, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t { return done(error, file->file.Sync()); });
}

DRAY_EXPORT int32_t dray_xrdcl_truncate(dray_xrdcl_file *file, uint64_t bytes, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t { return done(error, file->file.Truncate(bytes)); });
}

DRAY_EXPORT int32_t dray_xrdcl_make_dir(const char *url, const char *path, uint32_t mode, int32_t above,
                                        dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		XrdCl::FileSystem server{XrdCl::URL(url), false};
		auto flags = above ? XrdCl::MkDirFlags::MakePath : XrdCl::MkDirFlags::None;
		return done(error, server.MkDir(path, flags, static_cast<XrdCl::Access::Mode>(mode), CHANGE_SECONDS));
	});
}

DRAY_EXPORT int32_t dray_xrdcl_remove(const char *url, const char *path, int32_t folder,
                                      dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		XrdCl::FileSystem server{XrdCl::URL(url), false};
		return done(error, folder ? server.RmDir(path, CHANGE_SECONDS) : server.Rm(path, CHANGE_SECONDS));
	});
}

DRAY_EXPORT int32_t dray_xrdcl_set_mode(const char *url, const char *path, uint32_t mode,
                                        dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		XrdCl::FileSystem server{XrdCl::URL(url), false};
		return done(error, server.ChMod(path, static_cast<XrdCl::Access::Mode>(mode), CHANGE_SECONDS));
	});
}

DRAY_EXPORT int32_t dray_xrdcl_set_attribute(const char *url, const char *path, const char *name,
                                             const char *value, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		XrdCl::FileSystem server{XrdCl::URL(url), false};
		std::vector<XrdCl::xattr_t> given{std::make_tuple(std::string(name), std::string(value))};
		std::vector<XrdCl::XAttrStatus> each;
		auto status = server.SetXAttr(path, given, each, CHANGE_SECONDS);
		if (!status.IsOK())
			return fail(error, status);
		return each.empty() ? missing(error) : done(error, each.front().status);
	});
}

DRAY_EXPORT int64_t dray_xrdcl_attribute(const char *url, const char *path, const char *name, char *value,
                                         uint64_t value_bytes, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int64_t {
		XrdCl::FileSystem server{XrdCl::URL(url), false};
		std::vector<XrdCl::XAttr> each;
		auto status = server.GetXAttr(path, {std::string(name)}, each);
		if (!status.IsOK())
			return fail(error, status);
		if (each.empty())
			return missing(error);
		if (!each.front().status.IsOK())
			return fail(error, each.front().status);
		const std::string &found = each.front().value;
		if (found.size() >= value_bytes)
			return fail(error, DRAY_XRDCL_OTHER, "an attribute of the file is longer than dray's limit");
		std::memcpy(value, found.data(), found.size());
		return static_cast<int64_t>(found.size());
	});
}

DRAY_EXPORT int32_t dray_xrdcl_config(const char *url, const char *what, char *answer,
                                      uint32_t answer_bytes, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		return ask(url, XrdCl::QueryCode::Config, what, answer, answer_bytes, error);
	});
}

DRAY_EXPORT int32_t dray_xrdcl_space(const char *url, const char *path, char *answer,
                                     uint32_t answer_bytes, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		return ask(url, XrdCl::QueryCode::Space, path, answer, answer_bytes, error);
	});
}

} // extern "C"
