// A name mapping (`oss.namelib`): the names in a server's storage differ from the names of clients.
// With `suffix`, each stored name ends with .kept. With `folders`, each file is in a subfolder that
// is named after the first letter of the file.

#include <XrdOuc/XrdOucName2Name.hh>
#include <XrdVersion.hh>

#include <cerrno>
#include <cstring>
#include <string>

namespace {

class Mapped : public XrdOucName2Name {
public:
	Mapped(const char *root, const char *how)
		: root_(root ? root : ""), has_folders_(!std::strcmp(how, "folders"))
	{
	}

	int lfn2pfn(const char *name, char *into, int size) override
	{
		std::string path = name;
		auto last = path.rfind('/') + 1;
		if (has_folders_ && last < path.size())
			path.insert(last, std::string("by-") + path[last] + "/");
		else if (!has_folders_)
			path += ".kept";
		return put(root_ + path, into, size);
	}

	int lfn2rfn(const char *name, char *into, int size) override { return put(name, into, size); }
	int pfn2lfn(const char *name, char *into, int size) override { return put(name, into, size); }

private:
	static int put(const std::string &path, char *into, int size)
	{
		if (path.size() >= static_cast<size_t>(size))
			return ENAMETOOLONG;
		std::strcpy(into, path.c_str());
		return 0;
	}

	std::string root_;
	bool has_folders_;
};

} // namespace

XrdVERSIONINFO(XrdOucgetName2Name, mapped_names)

extern "C" XrdOucName2Name *XrdOucgetName2Name(XrdSysError *, const char *, const char *how, const char *root,
					       const char *)
{
	return new Mapped(root, how ? how : "");
}
