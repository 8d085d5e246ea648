#include "stager.hh"

#include <cerrno>
#include <map>

namespace dray {

namespace {

// Maximum length of an answer in bytes: 10000 files with long paths. The value is estimated, not
// measured.
constexpr size_t answer_bytes_max = 16 * 1024 * 1024;
// Maximum length of the id of a request in bytes.
constexpr size_t id_bytes_max = 64;
constexpr const char *id_letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-";
// The endpoint's priority for each priority of a client, 0 to 3. The endpoint's default is 3.
constexpr int priorities[] = {3, 5, 7, 9};

int number_of(const std::string &status)
{
	static const std::map<std::string, int> numbers = {
		{"400", EINVAL}, {"401", EACCES}, {"403", EACCES}, {"404", ENOENT}, {"413", E2BIG}, {"429", EBUSY},
	};
	auto found = numbers.find(status);
	return found == numbers.end() ? EIO : found->second;
}

void check(const Answer &answer, const char *wanted)
{
	if (answer.status == wanted)
		return;
	std::string said = "the endpoint answers " + answer.status + ": " + answer.cause();
	int number = number_of(answer.status);
	// The client gets the cause only if the answer concerns the request. Other answers concern the
	// endpoint or its token.
	bool is_for_client = number != EIO && answer.status != "401";
	throw Refused(number, is_for_client ? answer.cause() : "the dray endpoint cannot stage files now", said);
}

// Returns the body of an answer. Throws Refused if `is_good` is false.
nlohmann::json whole(const Answer &answer, bool is_good)
{
	if (!is_good)
		throw Refused(EIO, "the dray endpoint cannot stage files now", "the endpoint's answer is malformed");
	return answer.body;
}

nlohmann::json paths_of(const std::vector<Place> &files)
{
	nlohmann::json paths = nlohmann::json::array();
	for (const Place &file : files)
		paths.push_back(file.path);
	return {{"paths", paths}};
}

// Returns the id if it can be a part of a path. An id of another form belongs to no request.
std::string checked(const std::string &id)
{
	bool is_id = !id.empty() && id.size() <= id_bytes_max &&
		     id.find_first_not_of(id_letters) == std::string::npos;
	if (!is_id || id == "." || id == "..")
		throw Refused(ENOENT, "the request id is not valid", "the request id is not valid");
	return id;
}

// The state of one file of a request.
struct File {
	std::string state, error;
};

nlohmann::json described(const Place &file, const nlohmann::json &info, const File *of_request,
			 long long time)
{
	std::string locality = text_of(info, "locality");
	bool is_both = locality == "DISK_AND_TAPE";
	std::string state = of_request ? of_request->state : "";
	std::string error = of_request ? of_request->error : text_of(info, "error");
	if (of_request && error.empty() && (state == "CANCELLED" || state == "FAILED"))
		error = "the staging is " + std::string(state == "FAILED" ? "failed" : "cancelled");
	bool is_live = state == "SUBMITTED" || state == "STARTED";
	return {
		{"path", file.named},
		{"path_exists", !locality.empty()},
		{"on_tape", is_both || locality == "TAPE"},
		{"online", is_both || locality == "DISK"},
		{"requested", is_live},
		{"has_reqid", of_request != nullptr},
		{"req_time", of_request ? std::to_string(time) : ""},
		{"error_text", error},
	};
}

} // namespace

Stager::Stager(const Settings &settings) : settings_(settings), client_(settings)
{
	// Read the token now, so that an invalid token is reported at start-up. It is read again for
	// each request, because tokens expire and are replaced.
	read_token(settings_.token_file);
}

std::string Stager::stage(const std::vector<Place> &files, int priority, const std::string &token)
{
	nlohmann::json list = nlohmann::json::array();
	for (const Place &file : files) {
		nlohmann::json one = {{"path", file.path}};
		one["targetedMetadata"]["dray"]["priority"] = priorities[priority & 3];
		if (!settings_.lifetime.empty())
			one["diskLifetime"] = settings_.lifetime;
		list.push_back(one);
	}
	Answer answer = call("POST", "/v1/tape/stage", {{"files", list}}, token);
	check(answer, "201");
	std::string id = text_of(answer.body, "requestId");
	whole(answer, !id.empty());
	return id;
}

void Stager::cancel(const std::string &id, const std::string &token)
{
	std::string path = "/v1/tape/stage/" + checked(id);
	Answer answer = call("GET", path, nullptr, token);
	check(answer, "200");
	bool has_files = answer.body.is_object() && answer.body.contains("files");
	nlohmann::json paths = nlohmann::json::array();
	const nlohmann::json body = whole(answer, has_files);
	for (const auto &file : body["files"])
		paths.push_back(text_of(file, "path"));
	check(call("POST", path + "/cancel", {{"paths", paths}}, token), "200");
}

void Stager::evict(const std::vector<Place> &files, const std::string &token)
{
	check(call("POST", "/v1/tape/release/gfal2-placeholder-id", paths_of(files), token), "200");
}

std::string Stager::query(const std::string &id, const std::vector<Place> &files, const std::string &token)
{
	Answer request = call("GET", "/v1/tape/stage/" + checked(id), nullptr, token);
	std::map<std::string, File> known;
	long long time = 0;
	// An unknown request has no files. The answer still contains where each file is stored.
	if (request.status != "404") {
		check(request, "200");
		bool is_good = request.body.is_object() && request.body.contains("files") &&
			       request.body.contains("createdAt") && request.body["createdAt"].is_number();
		nlohmann::json body = whole(request, is_good);
		time = body["createdAt"].get<long long>();
		for (const auto &file : body["files"])
			known[text_of(file, "path")] = {text_of(file, "state"), text_of(file, "error")};
	}
	Answer places = call("POST", "/v1/tape/archiveinfo", paths_of(files), token);
	check(places, "200");
	std::map<std::string, nlohmann::json> infos;
	const nlohmann::json list = whole(places, places.body.is_array());
	for (const auto &info : list)
		infos[text_of(info, "path")] = info;
	nlohmann::json responses = nlohmann::json::array();
	for (const Place &file : files) {
		auto of_request = known.find(file.path);
		const File *found = of_request == known.end() ? nullptr : &of_request->second;
		responses.push_back(described(file, infos[file.path], found, time));
	}
	return nlohmann::json({{"request_id", id}, {"responses", responses}}).dump();
}

Answer Stager::call(const std::string &method, const std::string &path, const nlohmann::json &body,
		    const std::string &token)
{
	const char *unable = "the dray endpoint cannot stage files now";
	try {
		std::string own = token.empty() ? read_token(settings_.token_file) : token;
		std::string text = body.is_null() ? "" : body.dump();
		return client_.call(method, path, own, text, answer_bytes_max);
	} catch (const nlohmann::json::exception &) {
		throw Refused(EINVAL, "a file name is not UTF-8", "a file name is not UTF-8");
	} catch (const std::runtime_error &error) {
		throw Refused(EIO, unable, error.what());
	}
}

} // namespace dray
