// Handles the requests of `xrdfs prepare`: stages files through the dray endpoint beside the server.
// The server checks that the client may read the files before it calls this plug-in. No exception
// leaves the functions that the server calls.

#include "lines.hh"
#include "stager.hh"

#include <XrdOfs/XrdOfsPrepare.hh>
#include <XrdOss/XrdOss.hh>
#include <XrdOuc/XrdOucBuffer.hh>
#include <XrdOuc/XrdOucErrInfo.hh>
#include <XrdOuc/XrdOucTList.hh>
#include <XrdSec/XrdSecEntity.hh>
#include <XrdSfs/XrdSfsInterface.hh>
#include <XrdSys/XrdSysError.hh>
#include <XrdVersion.hh>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace dray {

namespace {

// Maximum length of a client's token in bytes.
constexpr int token_bytes_max = 65536;
// Alignment that the server demands of a buffer that it frees.
constexpr size_t page_bytes = 4096;

// Returns the token with which the client has logged in, or an empty text.
std::string token_of(const XrdSecEntity *client)
{
	if (!client || std::strncmp(client->prot, "ztn", XrdSecPROTOIDSIZE) != 0)
		return "";
	if (!client->creds || client->credslen <= 0 || client->credslen > token_bytes_max)
		return "";
	std::string token(client->creds, strnlen(client->creds, static_cast<size_t>(client->credslen)));
	for (char c : token)
		if (c <= 0x20 || c == 0x7f)
			return "";
	return token;
}

// Returns the path without symbolic links in its folders. Returns the path itself if its folder does
// not exist.
std::string without_links(const std::string &path)
{
	auto slash = path.rfind('/');
	char found[PATH_MAX];
	if (slash == std::string::npos || slash == 0 || !realpath(path.substr(0, slash).c_str(), found))
		return path;
	return found + path.substr(slash);
}

} // namespace

class Prepare : public XrdOfsPrepare {
public:
	Prepare(XrdSysError &log, XrdOss *storage, const Settings &settings)
		: log_(log), storage_(storage), settings_(settings), stager_(settings)
	{
	}

	int begin(XrdSfsPrep &asked, XrdOucErrInfo &answer, const XrdSecEntity *client) override
	{
		return guarded("prepare", answer, client, [&] {
			if (asked.opts & Prep_EVICT) {
				stager_.evict(places(asked), token(client));
				return SFS_OK;
			}
			if (!(asked.opts & Prep_STAGE))
				throw Refused(ENOTSUP, "only staging and eviction are supported; use prepare -s or -e",
					      "the request neither stages nor evicts");
			int priority = asked.opts & Prep_PMASK;
			std::string id = stager_.stage(places(asked), priority, token(client));
			answer.setErrInfo(static_cast<int>(id.size()) + 1, id.c_str());
			return SFS_DATA;
		});
	}

	int cancel(XrdSfsPrep &asked, XrdOucErrInfo &answer, const XrdSecEntity *client) override
	{
		return guarded("cancel", answer, client, [&] {
			stager_.cancel(asked.reqid ? asked.reqid : "", token(client));
			return SFS_OK;
		});
	}

	int query(XrdSfsPrep &asked, XrdOucErrInfo &answer, const XrdSecEntity *client) override
	{
		return guarded("query", answer, client, [&] {
			std::string id = asked.reqid ? asked.reqid : "";
			give(stager_.query(id, places(asked), token(client)), answer);
			return SFS_DATA;
		});
	}

private:
	template <typename Do>
	int guarded(const char *doing, XrdOucErrInfo &answer, const XrdSecEntity *client, Do act)
	{
		try {
			try {
				return act();
			} catch (const Refused &refused) {
				const char *whom = client && client->tident ? client->tident : "?";
				std::string line = std::string(doing) + " for " + whom + ": " + refused.log;
				log_.Emsg("dray", one_line(line).c_str());
				answer.setErrInfo(refused.number, one_line(refused.what()).c_str());
			}
		} catch (...) {
			answer.setErrInfo(EIO, "the request could not be handled");
		}
		return SFS_ERROR;
	}

	std::string token(const XrdSecEntity *client) const
	{
		return settings_.client_tokens ? token_of(client) : "";
	}

	// Returns the files of a request. Throws Refused if a file is in no root of the endpoint.
	std::vector<Place> places(const XrdSfsPrep &asked) const
	{
		std::vector<Place> files;
		for (const XrdOucTList *each = asked.paths; each; each = each->next) {
			std::string named = each->text ? each->text : "";
			char buffer[PATH_MAX];
			int error = 0;
			const char *found =
				storage_ ? storage_->Lfn2Pfn(named.c_str(), buffer, sizeof buffer, error) : named.c_str();
			std::string path = found ? path_at_endpoint(settings_, without_links(found)) : "";
			if (path.empty()) {
				std::string why = named + " is in no folder that the settings name as a root";
				throw Refused(ENOENT, named + " cannot be staged", why);
			}
			files.push_back({named, escaped(path)});
		}
		if (files.empty())
			throw Refused(EINVAL, "the request names no file", "the request names no file");
		return files;
	}

	// Sets the answer. A long text needs a buffer, which the server frees.
	static void give(const std::string &text, XrdOucErrInfo &answer)
	{
		int length = static_cast<int>(text.size()) + 1;
		if (text.size() < XrdOucEI::Max_Error_Len) {
			answer.setErrInfo(length, text.c_str());
			return;
		}
		void *memory = nullptr;
		size_t size = (text.size() + page_bytes) / page_bytes * page_bytes;
		if (posix_memalign(&memory, page_bytes, size) != 0)
			throw std::bad_alloc();
		std::memcpy(memory, text.c_str(), text.size() + 1);
		auto *buffer = new (std::nothrow) XrdOucBuffer(static_cast<char *>(memory), static_cast<int>(size));
		if (!buffer) {
			free(memory);
			throw std::bad_alloc();
		}
		buffer->SetLen(length);
		answer.setErrInfo(length, buffer);
	}

	XrdSysError &log_;
	XrdOss *storage_;
	Settings settings_;
	Stager stager_;
};

} // namespace dray

#pragma GCC visibility push(default)
XrdVERSIONINFO(XrdOfsgetPrepare, dray_prepare)

extern "C" XrdOfsPrepare *XrdOfsgetPrepare(XrdOfsgetPrepareArguments)
{
	(void)confg;
	(void)theSfs;
	(void)envP;
	try {
		if (!parms || !*parms)
			throw std::runtime_error("give the path of a settings file after the path of the plug-in");
		// The object is never freed, because threads of the server still send requests while the
		// server ends.
		return new dray::Prepare(*eDest, theOss, dray::read_settings(parms));
	} catch (const std::exception &error) {
		eDest->Emsg("dray", "staging:", error.what());
	} catch (...) {
		eDest->Emsg("dray", "staging cannot be set up");
	}
	return nullptr;
}
#pragma GCC visibility pop
