// What a driver is asked for, and what it reports: a line for each case, `PASS name`, or `FAIL name`, or `REFUSED name`
// for what the library does not take, with the reason behind a tab.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

struct Options
{
    bool device = false;  // memory of a HIP device
    bool large = false;   // cases of millions of elements too
    std::string only;     // a part of the names of the cases to run
    long every = 1;       // one in so many of them
    std::string argument; // what is not an option

    Options(int count, char** words)
    {
        for(int i = 1; i < count; i++)
        {
            std::string word = words[i];
            const char* next = i + 1 < count ? words[i + 1] : nullptr;
            if(word == "--device") device = true;
            else if(word == "--large") large = true;
            else if(word == "--only" && next) only = words[++i];
            else if(word == "--every" && next) every = std::strtol(words[++i], nullptr, 10);
            else if(word.compare(0, 2, "--") != 0) argument = word;
            else
            {
                std::fprintf(stderr, "expected --device, --large, --only TEXT or --every N, got %s\n", word.c_str());
                std::exit(2);
            }
        }
    }

    // Whether a case is to run. One in so many is taken by a hash of the name, so that it is not always the same of a
    // family.
    bool takes(const std::string& name) const
    {
        unsigned hash = 2166136261u;
        for(unsigned char c : name) hash = (hash ^ c) * 16777619u;
        return name.find(only) != std::string::npos && long(hash % 1000003u) % every == 0;
    }
};

namespace report
{
inline int& failures()
{
    static int count = 0;
    return count;
}

inline std::string one_line(std::string text)
{
    for(auto& c : text)
        if(c == '\n' || c == '\t') c = ' ';
    return text;
}

inline void pass(const std::string& name)
{
    std::printf("PASS %s\n", name.c_str());
    std::fflush(stdout);
}

inline void fail(const std::string& name, const std::string& reason)
{
    failures()++;
    std::printf("FAIL %s\t%s\n", name.c_str(), one_line(reason).c_str());
    std::fflush(stdout);
}

inline void refused(const std::string& name, const std::string& reason)
{
    std::printf("REFUSED %s\t%s\n", name.c_str(), one_line(reason).c_str());
    std::fflush(stdout);
}

inline void check(const std::string& name, bool good, const std::string& reason)
{
    good ? pass(name) : fail(name, reason);
}
} // namespace report
