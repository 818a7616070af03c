// Gives graphs in hipDNN's JSON form to hipdnnBackendCreateAndDeserializeJsonGraph_ext, as its frontend does, finalizes
// them, asks for engines, and writes them again: what is written must be read again.
//   json_graphs FOLDER [--only TEXT]
#include <dirent.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "backend.hpp"
#include "report.hpp"

static hipdnnHandle_t handle;

static std::string failed(const char* what)
{
    return std::string(what) + ": " + last_error();
}

// Empty if all is well.
static std::string problem(const std::string& json, bool again)
{
    hipdnnBackendDescriptor_t graph = nullptr;
    if(hipdnnBackendCreateAndDeserializeJsonGraph_ext(&graph, json.c_str(), json.size()))
        return failed(again ? "reading what was written" : "reading");
    std::string text;
    size_t bytes = 0;
    if(hipdnnBackendSetAttribute(graph, HIPDNN_ATTR_OPERATIONGRAPH_HANDLE, HIPDNN_TYPE_HANDLE, 1, &handle) ||
       hipdnnBackendFinalize(graph))
        text = failed("finalizing");
    else if(hipdnnBackendGetSerializedJsonGraph_ext(graph, 0, &bytes, nullptr) || bytes == 0) text = failed("writing");
    else
    {
        std::string written(bytes, 0);
        if(hipdnnBackendGetSerializedJsonGraph_ext(graph, bytes, &bytes, &written[0])) text = failed("writing");
        else if(!again) text = problem(written.c_str(), true);
    }
    hipdnnBackendDestroyDescriptor(graph);
    return text;
}

int main(int count, char** words)
{
    Options options(count, words);
    if(hipdnnCreate(&handle))
    {
        report::fail("hipdnnCreate", last_error());
        return 1;
    }
    DIR* folder = opendir(options.argument.c_str());
    if(!folder) std::perror(options.argument.c_str()), std::exit(2);
    std::vector<std::string> names;
    while(auto* entry = readdir(folder))
    {
        std::string name = entry->d_name;
        if(name.size() > 5 && name.substr(name.size() - 5) == ".json") names.push_back(name.substr(0, name.size() - 5));
    }
    closedir(folder);
    std::sort(names.begin(), names.end());
    for(auto& name : names)
    {
        if(!options.takes(name)) continue;
        std::ifstream file(options.argument + "/" + name + ".json");
        std::stringstream text;
        text << file.rdbuf();
        auto wrong = problem(text.str(), false);
        report::check(name, wrong.empty(), wrong);
    }
    if(hipdnnDestroy(handle)) report::fail("hipdnnDestroy", last_error());
    return report::failures() != 0;
}
