-- Builds the environment of each script, and runs it. The argument holds the functions of the host.
--
-- Scripts share one interpreter, so nothing that they can change may be shared: the environment and
-- its libraries are new tables for each run. What they share are functions, which cannot be changed
-- without the debug library. A script reaches neither this file's variables nor the real globals.
local host = ...
local error, getmetatable, next, pairs, pcall, select = error, getmetatable, next, pairs, pcall, select
local setmetatable, tostring, type, unpack, xpcall = setmetatable, tostring, type, unpack, xpcall
local find, match, gmatch, gsub, rep = string.find, string.match, string.gmatch, string.gsub, string.rep
local insert = table.insert

local plain = {}
for _, name in pairs({
    "_VERSION", "assert", "error", "getmetatable", "ipairs", "next", "pairs", "rawequal", "rawget", "rawset",
    "select", "setmetatable", "tonumber", "tostring", "type", "unpack",
}) do
    plain[name] = _G[name]
end

-- A function of a library that runs for long executes no instructions of Lua meanwhile, so no limit
-- would end it. These are refused before they begin.
local function admit(refusal)
    if refusal then
        error(refusal, 3)
    end
end

function string.find(text, pattern, init, is_plain)
    admit(host.check_pattern(text, pattern, is_plain and true or false))
    return find(text, pattern, init, is_plain)
end

function string.match(text, pattern, init)
    admit(host.check_pattern(text, pattern, false))
    return match(text, pattern, init)
end

function string.gmatch(text, pattern)
    admit(host.check_pattern(text, pattern, false))
    return gmatch(text, pattern)
end

function string.gsub(text, pattern, replacement, max)
    admit(host.check_pattern(text, pattern, false))
    return gsub(text, pattern, replacement, max)
end

function string.rep(text, count)
    admit(host.check_repetition(text, count))
    return rep(text, count)
end

function table.insert(list, ...)
    local position = ...
    if select("#", ...) > 1 and type(position) == "number" and position < 1 then
        error("bad argument #2 to 'insert' (position out of bounds)", 2)
    end
    return insert(list, ...)
end

-- Methods of strings are looked up in the real library, which a script cannot reach.
string.gfind, string.dump = nil, nil
getmetatable("").__metatable = false

local libraries = { string = string, table = table, math = math, bit = host.bit }

-- A script that has exceeded a limit does not go on, also if it catches the error.
local function finish(...)
    if host.is_over() then
        error(host.limit(), 0)
    end
    return ...
end

function plain.pcall(...)
    return finish(pcall(...))
end

function plain.xpcall(body, handler)
    return finish(xpcall(body, handler))
end

local function call(...)
    local reply = host.call(...)
    if type(reply) == "table" and reply.err then
        error(reply, 0)
    end
    return reply
end

local function fields_of_text(name, text, ...)
    if type(text) ~= "string" or select("#", ...) > 0 then
        return { err = "ERR wrong number or type of arguments" }
    end
    return { [name] = text }
end

local function error_reply(text, ...)
    if type(text) == "string" then
        text = gsub(text, "^-", "", 1)
    end
    return fields_of_text("err", text, ...)
end

local function status_reply(...)
    return fields_of_text("ok", ...)
end

local function sha1hex(...)
    if select("#", ...) ~= 1 then
        error("wrong number of arguments", 2)
    end
    return host.sha1hex((...))
end

local function log(level, ...)
    if type(level) ~= "number" or level < 0 or level > 3 then
        error("Invalid log level.", 2)
    end
    if select("#", ...) == 0 then
        error("redis.log() requires two arguments or more.", 2)
    end
    host.log(...)
end

local function setresp(version, ...)
    if select("#", ...) > 0 or (version ~= 2 and version ~= 3) then
        error("RESP version must be 2 or 3.", 2)
    end
    host.set_resp(version)
end

local function json(convert)
    return function(value)
        local result, failure = convert(value)
        if failure then
            error(failure, 2)
        end
        return result
    end
end

local redis = {
    call = call, pcall = host.call, error_reply = error_reply, status_reply = status_reply, sha1hex = sha1hex,
    log = log, setresp = setresp,
    -- Effects are always what is replicated.
    replicate_commands = function() return true end,
    set_repl = function() end,
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REPL_NONE = 0, REPL_SLAVE = 1, REPL_REPLICA = 1, REPL_AOF = 2, REPL_ALL = 3,
    REDIS_VERSION = host.redis_version, REDIS_VERSION_NUM = host.redis_version_number,
}
local cjson = { encode = json(host.json_encode), decode = json(host.json_decode), null = host.json_null }

local guard = {
    __index = function(_, name)
        error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end,
    __newindex = function()
        error("Attempt to modify a readonly table", 2)
    end,
    __metatable = false,
}

local function copy(from)
    local to = {}
    for name, value in next, from do
        to[name] = value
    end
    return to
end

local function environment(keys, arguments)
    local env = copy(plain)
    for name, library in next, libraries do
        env[name] = copy(library)
    end
    env.redis, env.cjson = copy(redis), copy(cjson)
    env.KEYS, env.ARGV, env._G = keys, arguments, env
    return setmetatable(env, guard)
end

-- Makes the table of an error, as Redis does, with the line of the script.
local function handler(failure)
    if host.is_over() then
        return { err = host.limit() }
    elseif type(failure) == "userdata" then
        failure = { err = "ERR the script ran out of memory" }
    elseif type(failure) ~= "table" then
        failure = { err = "ERR " .. tostring(failure) }
    end
    return { err = failure.err, line = host.line() }
end

local function run(script)
    return xpcall(script, handler)
end

return environment, run
