// Handles requests for tickets. A client that has a file open for reading may request a ticket for
// that file and for the client's own key. The open file proves that the client may read it. A
// request by path would prove no rights. No exception leaves the functions that the server calls.

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

// Message for the client. The server's log contains the reason.
constexpr const char *refusal = "dray at this server gives no ticket for the file";

// Returns the error for a command that neither this plug-in nor the next plug-in supports.
int unknown(XrdOucErrInfo &error)
{
	error.setErrInfo(ENOTSUP, "fctl operation not supported");
	return SFS_ERROR;
}

// Returns the path that the endpoint has for a file that is open for reading.
std::string endpoint_path(XrdSfsFile &file, const Settings &settings)
{
	XrdOucErrInfo answer;
	int number = file.fctl(SFS_FCTL_GETFD, nullptr, answer) == SFS_OK ? answer.getErrInfo() : -1;
	int how = number < 0 ? -1 : fcntl(number, F_GETFL);
	// The right to write a file does not include the right to read it.
	if (how >= 0 && (how & O_ACCMODE) != O_RDONLY)
		throw NoTicket(EACCES, "the file is not open for reading only");
	struct stat opened;
	std::string place = how < 0 ? "" : path_of(number, opened);
	std::string path = place.empty() ? "" : path_at_endpoint(settings, place);
	if (path.empty())
		throw NoTicket(ENOENT, "the file is in none of the folders that the settings name as a root");
	return path;
}

} // namespace

// This class is not in the anonymous namespace, because the server looks up an object of it.
class Control : public XrdOfsFSctl_PI {
public:
	bool Configure(const char *, const char *parms, XrdOucEnv *, const Plugins &) override
	{
		try {
			if (!parms || !*parms)
				throw std::runtime_error("give the path of a settings file after the path of the plug-in");
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

	// A request by path gets no ticket, because the server does not check the client's rights for such
	// a request.
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
				throw NoTicket(ENAMETOOLONG, "the name of the file is too long for an answer");
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

	// These objects are never freed, because threads of the server still send requests while the
	// server ends.
	Settings *settings_ = nullptr;
	TicketClient *client_ = nullptr;
};

} // namespace dray

#pragma GCC visibility push(default)
XrdVERSIONINFO(XrdOfsFSctl, dray_ctl)
#pragma GCC visibility pop

__attribute__((visibility("default"))) dray::Control XrdOfsFSctl;
