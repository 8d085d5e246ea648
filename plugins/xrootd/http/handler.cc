// Handles HTTP third-party copies. The handler accepts COPY requests and opens the local file with
// the client's identity, so that the server still decides on permissions. It then starts a separate
// program that moves the data. No exception leaves ProcessReq or the entry point.

#include "compat.hh"
#include "copy.hh"
#include "exports.hh"
#include "hidden.hh"
#include "lines.hh"
#include "file_path.hh"

#include <XrdHttp/XrdHttpExtHandler.hh>
#include <XrdNet/XrdNetAddr.hh>
#include <XrdOuc/XrdOucEnv.hh>
#include <XrdOuc/XrdOucErrInfo.hh>
#include <XrdSec/XrdSecEntity.hh>
#include <XrdSfs/XrdSfsInterface.hh>
#include <XrdSys/XrdSysError.hh>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

namespace {

using dray::Refusal;

// Maximum total seconds that the server may take to find a file. In a cluster this takes time,
// because the manager asks its servers for the file.
constexpr int stall_seconds_max = 60;
// Mode of a new file, as for files that the server itself creates: the owner may write, all users
// may read.
constexpr mode_t file_mode = 0644;

struct Redirect {
	std::string location;
};

// Percent-encodes a value for a URL. The characters in `kept` are not encoded.
std::string quoted(const std::string &text, const char *kept = "")
{
	static const char digits[] = "0123456789ABCDEF";
	std::string out;
	for (unsigned char c : text) {
		if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		    (c && (std::strchr("-._~", c) || std::strchr(kept, c))))
			out += static_cast<char>(c);
		else
			(out += '%') += {digits[c >> 4], digits[c & 15]};
	}
	return out;
}

std::string header(const XrdHttpExtReq &request, const char *name)
{
	for (const auto &[known, value] : request.headers)
		if (strcasecmp(known.c_str(), name) == 0)
			return value;
	return "";
}

// Refuses URL parameters that are reserved for the server's file system and dray's storage wrapper.
// With such a parameter, a client could make an HTTP copy look like a root:// copy, which has other
// authorisation rules.
void refuse_own_words(const std::string &query)
{
	for (const char *own : {"tpc.", "dray."})
		for (size_t at = query.find(own); at != std::string::npos; at = query.find(own, at + 1))
			if (at == 0 || query[at - 1] == '&' || query[at - 1] == '?')
				throw Refusal(400, "the URL has parameters that are reserved for the server: tpc. or dray.");
}

// Returns the client's identity in the form that the server's plug-ins use.
std::string opaque(const XrdHttpExtReq &request)
{
	std::string query = header(request, "xrd-http-query");
	std::string authorization = header(request, "Authorization");
	bool is_told = query.find("authz=") != std::string::npos;
	if (authorization.empty() || is_told)
		return query;
	return query + (query.empty() ? "" : "&") + "authz=" + quoted(authorization);
}

int status_of(int error)
{
	switch (error) {
	case ENOENT:
		return 404;
	case EACCES:
	case EPERM:
	case EROFS:
		return 403;
	case EISDIR:
	case ENOTDIR:
		return 409;
	case EBUSY:
	case ETXTBSY:
		return 423;
	case ENOSPC:
	case EDQUOT:
		return 507;
	default:
		return 500;
	}
}

// Returns the client's socket, or -1 if it is unknown. The security entity of an HTTP client
// contains no address. But the server gives each connection a name of the form
// USER.PID:SOCKET@HOST.
int socket_of(XrdHttpExtReq &request)
{
	std::string name;
	request.GetClientID(name);
	auto colon = name.find(':');
	int file = -1;
	if (colon != std::string::npos) {
		const char *number = name.c_str() + colon + 1;
		char *end = nullptr;
		long read = std::strtol(number, &end, 10);
		if (end != number && *end == '@' && read > 2 && read < INT_MAX)
			file = static_cast<int>(read);
	}
	struct sockaddr_storage peer;
	socklen_t length = sizeof peer;
	bool is_connected = file >= 0 && getpeername(file, reinterpret_cast<sockaddr *>(&peer), &length) == 0;
	return is_connected ? file : -1;
}

// Returns the network type of the client for the server's file system. The manager of a cluster
// uses it to choose a server that the client can reach.
int reach(int client)
{
	int reach = XrdOucEI::uUrlOK;
	XrdNetAddr address;
	if (client < 0 || address.Set(client) != nullptr)
		return reach;
	bool is_old = address.isIPType(XrdNetAddrInfo::IPv4) || address.isMapped();
	return reach | (is_old ? XrdOucEI::uIPv4 : 0) | (address.isPrivate() ? XrdOucEI::uPrip : 0);
}

// A file of the server, opened with the client's rights. The destructor closes it.
class LocalFile {
public:
	// Checks the path, but does not open the file. Throws Refusal.
	LocalFile(XrdSfsFileSystem &files, const dray::Exports &exports, XrdHttpExtReq &request)
		: files_(files), request_(request), opaque_(opaque(request))
	{
		if (!exports.reach(request.resource))
			throw Refusal(403, "the server does not export this path");
		if (request.resource.back() == '/')
			throw Refusal(409, "the address names a folder, but only files can be copied");
		refuse_own_words(opaque_);
		renew();
	}

	~LocalFile()
	{
		close();
		if (pin_ >= 0)
			::close(pin_);
	}

	// Opens the file for reading.
	void open_source()
	{
		if (int error = open(SFS_O_RDONLY, 0))
			throw Refusal(status_of(error), said());
	}

	// Opens the file for writing. An existing file is not truncated. It is replaced when the copy
	// is complete.
	void open_sink(bool may_overwrite)
	{
		const std::string own = opaque_;
		is_sink_ = true;
		// Tell the server's storage wrapper (plugins/xrootd/oss), if there is one, that this is a
		// copy. The destination name then does not exist before the file is complete.
		opaque_ += (opaque_.empty() ? "" : "&") + std::string(dray::http_copy) + "=1";
		make(may_overwrite);
		path_ = dray::place_of(number(), opened_);
		bool is_nameless = !path_.empty() && opened_.st_nlink == 0;
		is_hidden_ = is_nameless && find_hidden();
		if (!is_nameless || is_hidden_)
			return;
		// The destination path could not be determined, so copy without the storage wrapper.
		close();
		renew();
		opaque_ = own;
		make(may_overwrite);
	}

	// Returns the path of the file. A program that opens the file itself needs the path.
	std::string find()
	{
		if (is_hidden_)
			return path_;
		path_ = dray::path_of(number(), opened_);
		if (path_.empty())
			throw Refusal(501, "dray cannot open the files of this server's storage");
		if (is_sink_)
			let_go();
		return path_;
	}

	// Returns true if the client may create a new file but may not replace an existing one.
	bool is_new() const { return is_made_; }

	// Returns true if the destination name belongs to an empty file that was created for this copy.
	bool is_placeholder() const { return is_made_ && !is_hidden_; }

	// Deletes the empty file after a failed copy. Another copy may publish its file under the name
	// between a check and a deletion. So this function first renames the file and then checks it. A
	// file of another copy gets its name back. If the name is taken again by then, the file keeps
	// the temporary name, and the log reports this.
	void forget(XrdSysError &log)
	{
		if (!is_placeholder() || path_.empty() || !is_own_and_empty(path_))
			return;
		static std::atomic<unsigned> number{0};
		std::string aside = path_.substr(0, path_.rfind('/') + 1) + ".dray-forget-" +
				    std::to_string(getpid()) + "-" + std::to_string(number++);
		if (rename(path_.c_str(), aside.c_str()) != 0)
			return;
		bool is_settled = is_own_and_empty(aside) || link(aside.c_str(), path_.c_str()) == 0;
		if (!is_settled && errno != EEXIST && rename(aside.c_str(), path_.c_str()) == 0)
			return;
		if (is_settled)
			unlink(aside.c_str());
		else
			log.Emsg("dray", "another file took the name of a complete file; the complete file is now",
				 dray::one_line(aside).c_str());
	}

private:
	void renew()
	{
		file_.reset(files_.newFile(const_cast<char *>(request_.GetSecEntity().tident), 0));
		if (!file_)
			throw Refusal(503, "the server cannot open another file");
		file_->error.setUCap(reach(socket_of(request_)));
	}

	// Closes the file at the destination before the copy program replaces it. Otherwise a client that
	// opens the name would get the server's open handle. That handle refers to the replaced file, so
	// the client's writes would be lost. A duplicate of the descriptor stays open, so that the system
	// does not reuse the inode number.
	void let_go()
	{
		pin_ = fcntl(number(), F_DUPFD_CLOEXEC, 3);
		if (pin_ >= 0)
			close();
	}

	void close()
	{
		if (is_open_)
			file_->close();
		is_open_ = false;
	}

	void make(bool may_overwrite)
	{
		int error = open(SFS_O_CREAT | SFS_O_RDWR, file_mode | SFS_O_MKPTH);
		is_made_ = error == 0;
		if (error == EEXIST && !may_overwrite)
			throw Refusal(412, "the destination exists, and the header Overwrite is F");
		if (error == EEXIST)
			error = open(SFS_O_RDWR, 0);
		if (error != 0)
			throw Refusal(status_of(error), said());
	}

	// Returns this process's descriptor of the file, or -1 if it has none.
	int number()
	{
		bool is_known = file_->fctl(SFS_FCTL_GETFD, nullptr, file_->error) == SFS_OK;
		return is_known ? file_->error.getErrInfo() : -1;
	}

	// Determines the path of the destination if the storage wrapper has opened a placeholder in its
	// place. The placeholder has no name any more. Its deleted name was in the folder of the
	// destination, so the path is that folder and the last component of the requested path. The
	// deleted name must start with the prefix that the wrapper of this process uses. Returns false
	// if the storage maps names (`oss.namelib`), because the mapping may put the placeholder and
	// the destination into different folders.
	bool find_hidden()
	{
		if (std::getenv("XRDN2NLIB"))
			return false;
		const std::string gone = " (deleted)", mark = dray::nameless + std::to_string(getpid()) + "-";
		auto name = path_.rfind('/') + 1;
		auto asked = request_.resource.substr(request_.resource.rfind('/') + 1);
		bool is_gone = path_.size() > gone.size() &&
			       path_.compare(path_.size() - gone.size(), gone.size(), gone) == 0;
		if (!is_gone || path_.compare(name, mark.size(), mark) != 0 || asked.empty())
			return false;
		path_ = path_.substr(0, name) + asked;
		return true;
	}

	bool is_own_and_empty(const std::string &path) const
	{
		struct stat found;
		return stat(path.c_str(), &found) == 0 && dray::is_same(found, opened_) && found.st_size == 0;
	}

	// Opens the file. Returns the system's error number, or 0. Throws Redirect if another server
	// has the file.
	int open(XrdSfsFileOpenMode how, mode_t mode)
	{
		for (int waited = 0;;) {
			int answer = file_->open(request_.resource.c_str(), how | SFS_O_NOTPC, mode,
						 &request_.GetSecEntity(), opaque_.c_str());
			int number = 0;
			std::string text = file_->error.getErrText(number) ? file_->error.getErrText() : "";
			if (answer == SFS_OK) {
				is_open_ = true;
				return 0;
			}
			if (answer == SFS_REDIRECT)
				throw redirect(text, number);
			if (answer == SFS_STARTED || answer > 0) {
				int seconds = answer > 0 ? answer : 1;
				waited += seconds;
				if (waited > stall_seconds_max)
					throw Refusal(503, "the server did not find the file in time");
				sleep(static_cast<unsigned>(seconds));
				continue;
			}
			return number != 0 ? number : EIO;
		}
	}

	Redirect redirect(const std::string &text, int port) const
	{
		std::string host = text.substr(0, text.find('?'));
		if (host.find("://") != std::string::npos)
			return {host};
		std::string scheme = header(request_, "xrd-http-prot");
		std::string location = (scheme.empty() ? "http" : scheme) + "://" + host;
		if (port > 0)
			location += ":" + std::to_string(port);
		// The server has already decoded %HH in the query, so encode it again.
		std::string query = header(request_, "xrd-http-query");
		query = quoted(query.substr(std::min(query.size(), query.find_first_not_of('&'))), "&=");
		return {location + quoted(request_.resource, "/") + (query.empty() ? "" : "?" + query)};
	}

	std::string said() const
	{
		const char *text = file_->error.getErrText();
		return text && *text ? text : "the server does not open the file";
	}

	XrdSfsFileSystem &files_;
	XrdHttpExtReq &request_;
	std::string opaque_;
	std::unique_ptr<XrdSfsFile> file_;
	bool is_open_ = false;
	bool is_sink_ = false;
	bool is_made_ = false;
	bool is_hidden_ = false;
	std::string path_;
	struct stat opened_ = {};
	// Descriptor of the file that stays open after the server has closed the file; -1 if there is
	// none.
	int pin_ = -1;
};

// Destination paths of the copies in progress, as clients name them.
struct Names {
	std::mutex lock;
	std::set<std::string> taken;
};

// One of the slots for concurrent copies.
class Place {
public:
	Place(std::atomic<int> &taken, int most) : taken_(taken)
	{
		if (++taken_ > most) {
			--taken_;
			throw Refusal(503, "the server already runs its maximum number of copies; try again later");
		}
	}
	Place(const Place &) = delete;
	Place &operator=(const Place &) = delete;
	~Place() { --taken_; }

private:
	std::atomic<int> &taken_;
};

// Reserves the destination name of a copy, so that a second copy to the same name is refused.
// Otherwise the empty file that the second copy creates could make the first copy fail.
class Name {
public:
	Name(Names &names, const std::string &name) : names_(names), name_(name)
	{
		std::lock_guard<std::mutex> hold(names_.lock);
		if (!names_.taken.insert(name_).second)
			throw Refusal(423, "another copy to this name is running");
	}
	Name(const Name &) = delete;
	Name &operator=(const Name &) = delete;
	~Name()
	{
		std::lock_guard<std::mutex> hold(names_.lock);
		names_.taken.erase(name_);
	}

private:
	Names &names_;
	const std::string name_;
};

class Handler : public XrdHttpExtHandler {
public:
	Handler(XrdSysError &log, XrdSfsFileSystem &files, const dray::Settings &settings,
		const dray::Exports &exports, const std::string &authorities)
		: log_(log), files_(files), settings_(settings), exports_(exports), authorities_(authorities)
	{
	}

	bool MatchesPath(const char *verb, const char *) override { return std::strcmp(verb, "COPY") == 0; }

	int Init(const char *) override { return 0; }

	int ProcessReq(XrdHttpExtReq &request) override
	{
		try {
			return process(request);
		} catch (const Redirect &redirect) {
			std::string location = "Location: " + dray::whole_line(redirect.location);
			return request.SendSimpleResp(307, nullptr, location.c_str(), nullptr, 0);
		} catch (const Refusal &refusal) {
			std::string why = dray::one_line(refusal.what()) + "\n";
			return request.SendSimpleResp(refusal.status, nullptr, nullptr, why.c_str(),
						      static_cast<long long>(why.size()));
		} catch (const std::exception &error) {
			log_.Emsg("dray", "copy", dray::one_line(error.what()).c_str());
			const char *why = "the copy cannot be started; the server's log has the reason\n";
			return request.SendSimpleResp(500, nullptr, nullptr, why, -1);
		} catch (...) {
			return -1;
		}
	}

private:
	int process(XrdHttpExtReq &request)
	{
		dray::CopyRequest asked = dray::read_request(request.headers);
		Place place(under_way_, settings_.copies_max);
		LocalFile file(files_, exports_, request);
		std::optional<Name> name;
		if (asked.is_pull) {
			name.emplace(names_, request.resource);
			file.open_sink(asked.may_overwrite);
		} else {
			file.open_source();
		}
		bool is_begun = false;
		dray::Outcome outcome;
		auto send = [&](const std::string &text) {
			if (!is_begun && request.StartChunkedResp(dray::status_begun, nullptr,
								  "Content-Type: text/plain") != 0)
				return false;
			is_begun = true;
			return request.ChunkResp(text.c_str(), static_cast<long long>(text.size())) == 0;
		};
		try {
			std::string path = file.find();
			asked.has_placeholder = file.is_placeholder();
			if (asked.is_pull && file.is_new())
				asked.may_overwrite = false;
			outcome = dray::copy(settings_, asked, path, authorities_,
					     socket_of(request), send);
		} catch (...) {
			file.forget(log_);
			if (!is_begun)
				throw;
			outcome.failure = "the copy was interrupted";
		}
		bool is_good = !outcome.is_client_gone && outcome.failure.empty();
		if (!is_good)
			file.forget(log_);
		tell(request, asked, outcome);
		if (outcome.is_client_gone)
			return -1;
		std::string last = is_good ? "success: Created\n"
					   : "failure: " + dray::one_line(outcome.failure) + "\n";
		if (!send(last))
			return -1;
		return request.ChunkResp(nullptr, 0);
	}

	// Writes one line to the server's log. The line omits the URL of the other end, which may
	// contain a secret.
	void tell(const XrdHttpExtReq &request, const dray::CopyRequest &asked, const dray::Outcome &outcome)
	{
		std::string line = asked.is_pull ? "pull to " : "push of ";
		line += request.resource + ": ";
		if (outcome.is_client_gone)
			line += "the client has disconnected";
		else
			line += outcome.failure.empty() ? "done" : outcome.failure;
		log_.Emsg("dray", dray::one_line(line).c_str());
	}

	XrdSysError &log_;
	XrdSfsFileSystem &files_;
	dray::Settings settings_;
	dray::Exports exports_;
	std::string authorities_;
	std::atomic<int> under_way_{0};
	Names names_;
};

} // namespace

#pragma GCC visibility push(default)
XrdVERSIONINFO(XrdHttpGetExtHandler, dray_http)
#pragma GCC visibility pop

extern "C" __attribute__((visibility("default"))) XrdHttpExtHandler *
XrdHttpGetExtHandler(XrdSysError *log, const char *, const char *parms, XrdOucEnv *env)
{
	try {
		dray::Settings settings;
		if (parms && *parms)
			settings = dray::read_settings(parms);
		void *files = env ? env->GetPtr("XrdSfsFileSystem*") : nullptr;
		if (!files)
			throw std::runtime_error("the server has no file system for the plug-in");
		if (access(settings.program.c_str(), X_OK) != 0)
			throw std::runtime_error(settings.program + " cannot be run: " + std::strerror(errno));
		// The server's own protocol code has set this variable to its exports.
		const char *exported = std::getenv("XRDEXPORTS");
		if (!exported)
			throw std::runtime_error("the server does not report which paths it exports");
		const char *authorities = env->Get("http.cadir");
		return new Handler(*log, *static_cast<XrdSfsFileSystem *>(files), settings,
				   dray::Exports(exported), authorities ? authorities : "");
	} catch (const std::exception &error) {
		log->Emsg("dray", "HTTP third-party copies:", error.what());
	} catch (...) {
		log->Emsg("dray", "HTTP third-party copies cannot be set up");
	}
	return nullptr;
}
