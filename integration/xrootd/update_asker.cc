// update_asker URL QUESTION: opens a file of a server for update, and queries the server about the
// open file.

#include <XrdCl/XrdClFile.hh>

#include <iostream>
#include <memory>

int main(int, char **words)
{
	XrdCl::File file;
	auto status = file.Open(words[1], XrdCl::OpenFlags::Update);
	if (!status.IsOK()) {
		std::cout << "not open: " << status.ToStr() << std::endl;
		return 1;
	}
	XrdCl::Buffer question;
	question.FromString(words[2]);
	XrdCl::Buffer *answer = nullptr;
	status = file.Fcntl(question, answer);
	std::unique_ptr<XrdCl::Buffer> held(answer);
	std::cout << (status.IsOK() && answer ? "answer: " + answer->ToString() : "refused: " + status.ToStr())
		  << std::endl;
	status = file.Close();
	return 0;
}
