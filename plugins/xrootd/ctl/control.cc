// The server's side of tickets: a client with a file open for reading may request a ticket for that
// file and for its own key. The open file is the proof of the client's rights: a request by path
// would need no rights, and the key of a third-party copy opens its file only once. Nothing is
// thrown past the entry points of the server.

#include "file_path.hh"
#include "lines.hh"
#include "ticket_client.hh"

#include <XrdOfs/XrdOfsFSctl_PI.hh>
#include <XrdOuc/XrdOucErrInfo.hh>
#include <XrdSec/XrdSecEntity.hh>
#include <XrdSfs/XrdSfsInterface.hh>
#include <XrdSys/XrdSysError.hh>
#include <XrdVersion.hh>

#include <fcntl.h>

#include <cerrno>
#include <cstring>

namespace dray {

namespace {

// The client's message; the server's log has the reason.
constexpr const char *refusal = "dray at this server gives no ticket for the file";

// Returns the error for a command that neither this plug-in nor the next one knows.
int unknown(XrdOucErrInfo &error)
{
	error.setErrInfo(ENOTSUP, "fctl operation not supported");
	return SFS_ERROR;
}

// Returns the endpoint's path of a file that is open for reading.
std::string endpoint_path(XrdSfsFile &file, const Settings &settings)
{
	XrdOucErrInfo answer;
	int number = file.fctl(SFS_FCTL_GETFD, nullptr, answer) == SFS_OK ? answer.getErrInfo() : -1;
	int how = number < 0 ? -1 : fcntl(number, F_GETFL);
	// Permission to write a file does not imply permission to read it.
	if (how >= 0 && (how & O_ACCMODE) != O_RDONLY)
		throw NoTicket(EACCES, "it is not open to be read alone");
	struct stat opened;
	std::string place = how < 0 ? "" : path_of(number, opened);
	std::string path = place.empty() ? "" : path_at_endpoint(settings, place);
	if (path.empty())
		throw NoTicket(ENOENT, "it lies in none of the folders that the settings name as a root");
	return path;
}

} // namespace

// Not in an anonymous namespace: the server looks up an object of this class.
class Control : public XrdOfsFSctl_PI {
public:
	bool Configure(const char *, const char *parms, XrdOucEnv *, const Plugins &) override
	{
		try {
			if (!parms || !*parms)
				throw std::runtime_error("name a file with settings after the plug-in");
			settings_ = new Settings(read_settings(parms));
			client_ = new TicketClient(*settings_);
			return true;
		} catch (const std::exception &error) {
			eDest->Emsg("dray", "tickets for third-party copies:", error.what());
		} catch (...) {
			eDest->Emsg("dray", "tickets for third-party copies cannot be set up");
		}
		return false;
	}

	int FSctl(const int command, int length, const char *words, XrdSfsFile &file, XrdOucErrInfo &error,
		  const XrdSecEntity *client) override
	{
		try {
			std::string asked;
			if (words && length > 0)
				asked.assign(words, strnlen(words, static_cast<size_t>(length)));
			if (command == SFS_FCTL_SPEC1 && client_ && is_meant(asked))
				return answer(asked, file, error, client);
		} catch (...) {
			error.setErrInfo(EIO, refusal);
			return SFS_ERROR;
		}
		return prvPI ? prvPI->FSctl(command, length, words, file, error, client) : unknown(error);
	}

	// Requests by path get no ticket: the server checks no rights for them.
	int FSctl(const int command, XrdSfsFSctl &words, XrdOucErrInfo &error, const XrdSecEntity *client) override
	{
		return prvPI ? prvPI->FSctl(command, words, error, client) : unknown(error);
	}

private:
	int answer(const std::string &asked, XrdSfsFile &file, XrdOucErrInfo &error, const XrdSecEntity *client)
	{
		const char *name = file.FName() ? file.FName() : "?";
		const char *whom = client && client->tident ? client->tident : "?";
		try {
			Question question = read_question(asked);
			std::string text = client_->ticket(question, endpoint_path(file, *settings_));
			if (text.size() >= XrdOucEI::Max_Error_Len)
				throw NoTicket(ENAMETOOLONG, "its name is too long for an answer");
			tell("ticket for", name, whom, "");
			error.setErrInfo(static_cast<int>(text.size()), text.c_str());
			return SFS_DATA;
		} catch (const NoTicket &none) {
			tell("no ticket for", name, whom, std::string(": ") + none.what());
			error.setErrInfo(none.number, refusal);
			return SFS_ERROR;
		}
	}

	// Writes one line to the server's log.
	void tell(const char *what, const char *name, const char *whom, const std::string &why)
	{
		std::string line = std::string(what) + " " + name + " to " + whom + why;
		eDest->Emsg("dray", one_line(line).c_str());
	}

	// Never freed: threads of the server still send requests while it ends.
	Settings *settings_ = nullptr;
	TicketClient *client_ = nullptr;
};

} // namespace dray

#pragma GCC visibility push(default)
XrdVERSIONINFO(XrdOfsFSctl, dray_ctl)
#pragma GCC visibility pop

__attribute__((visibility("default"))) dray::Control XrdOfsFSctl;
