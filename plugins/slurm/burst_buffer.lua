--[[
Calls dray from Slurm's burst buffer plugin (burst_buffer/lua): stages data in before a job, finds
the checkpoint from which the job restarts, and stages data out after the job.

docs/how-to/slurm-burst-buffer.md describes the installation. A job requests burst buffer work by
directives at the start of its script, one operation per line:

  #BB_LUA restart application=NAME [version=N]
  #BB_LUA in path=/SLOW/PATH [to=/FAST/PATH] [recursive=yes] [keep=yes]
  #BB_LUA out path=/FAST/PATH [to=/SLOW/PATH] [recursive=yes] [application=NAME version=N]

The job's environment then has DRAY_RESTART: the checkpoint as a path of the compute node, or an
empty text if the application has no checkpoint.

The endpoint runs all copies. A copy that this script has started continues without it, and a second
call of a function resumes it.
--]]

local config = {
    -- HOST[:PORT] of the endpoint, and the fingerprint of its key.
    endpoint = os.getenv("DRAY_ENDPOINT") or "localhost:4735",
    peer_key = os.getenv("DRAY_PEER_KEY") or "",
    -- Path of the program `dray`.
    program = os.getenv("DRAY_PROGRAM") or "dray",
    -- File with the token of a user. %s is replaced by the numeric id of the user.
    token_file = os.getenv("DRAY_SLURM_TOKENS") or "/etc/dray/slurm/%s.token",
    -- Folder for one file per job. The user of slurmctld must be able to write there.
    state = os.getenv("DRAY_SLURM_STATE") or "/var/spool/slurmctld/dray",
    -- Name of the fast root, and its mount point on the compute nodes.
    fast_root = os.getenv("DRAY_SLURM_ROOT") or "fast",
    fast_mount = os.getenv("DRAY_SLURM_MOUNT") or "/fast",
    -- Time for which the endpoint keeps the fast copies of a job. It must cover the longest time
    -- for which a job waits and runs.
    pin = os.getenv("DRAY_SLURM_PIN") or "7d",
}

local NAME = "burst_buffer.lua (dray)"

-- Keys of each operation. The value is true for a required key.
local OPERATIONS = {
    restart = { application = true, version = false },
    ["in"] = { path = true, to = false, recursive = false, keep = false },
    out = { path = true, to = false, recursive = false, application = false, version = false },
}

-- Directives ---------------------------------------------------------------------------------------

local function check_value(key, value)
    if (key == "path" or key == "to") and value:sub(1, 1) ~= "/" then
        return "is not a path of the endpoint: write /ROOT/PATH"
    end
    if key == "version" and not value:match("^%d+$") then
        return "is not a number"
    end
    if (key == "recursive" or key == "keep") and value ~= "yes" and value ~= "no" then
        return "is neither yes nor no"
    end
    return nil
end

-- Returns the operation of a directive, or nil and the error.
local function parse_directive(line)
    local words = {}
    for word in line:gmatch("%S+") do
        words[#words + 1] = word
    end
    local keys = OPERATIONS[words[2] or ""]
    if keys == nil then
        return nil, "the operation must be restart, in or out"
    end
    local found = { operation = words[2] }
    for index = 3, #words do
        local key, value = words[index]:match("^([^=]+)=(.+)$")
        if key == nil or keys[key] == nil then
            return nil, "unknown word " .. words[index]
        end
        local wrong = check_value(key, value)
        if wrong then
            return nil, key .. ": " .. value .. " " .. wrong
        end
        found[key] = value
    end
    for key, is_required in pairs(keys) do
        if is_required and found[key] == nil then
            return nil, key .. "= is missing"
        end
    end
    if found.operation == "out" and (found.application == nil) ~= (found.version == nil) then
        return nil, "application= and version= belong together"
    end
    return found
end

-- Returns the operations of a job script, or nil and the error.
local function read_operations(job_script)
    local file, problem = io.open(job_script, "r")
    if file == nil then
        return nil, "cannot read the job script: " .. tostring(problem)
    end
    local found = {}
    for line in file:lines() do
        if line:match("^#BB_LUA%s") or line == "#BB_LUA" then
            local operation, wrong = parse_directive(line)
            if operation == nil then
                file:close()
                return nil, line .. ": " .. wrong
            end
            found[#found + 1] = operation
        end
    end
    file:close()
    return found
end

-- Commands -----------------------------------------------------------------------------------------

local function quote(text)
    return "'" .. tostring(text):gsub("'", "'\\''") .. "'"
end

-- Runs dray. Returns its exit code and its output. The code is printed, because the result of
-- io.popen has no code in Lua 5.1.
local function dray(uid, words)
    local all = { quote(config.program) }
    for _, word in ipairs(words) do
        all[#all + 1] = quote(word)
    end
    all[#all + 1] = "--endpoint " .. quote(config.endpoint)
    all[#all + 1] = "--token-file " .. quote(config.token_file:format(uid))
    if config.peer_key ~= "" then
        all[#all + 1] = "--peer-key " .. quote(config.peer_key)
    end
    local command = table.concat(all, " ")
    slurm.log_info("%s: %s", NAME, command)
    local pipe = io.popen(command .. " 2>&1; echo \"exit $?\"", "r")
    local output = pipe:read("*a")
    pipe:close()
    local text, code = output:match("^(.*)exit (%d+)%s*$")
    return tonumber(code or 1), text or output
end

-- Returns the last line of a text: the error of a failed command.
local function last_line(text)
    local last = ""
    for line in text:gmatch("[^\n]+") do
        last = line
    end
    return last
end

local function failed(operation, output)
    local what = "dray cannot stage " .. operation.operation .. " "
    what = what .. (operation.path or operation.application or "")
    return slurm.ERROR, what .. ": " .. last_line(output)
end

-- State of a job -----------------------------------------------------------------------------------

-- The state of a job is a file with the ids of its fast copies ("copy ID" and "keep ID") and the
-- environment of the job ("env NAME=VALUE").
local function state_path(job_id)
    return config.state .. "/job." .. job_id
end

local function write_state(job_id, lines)
    local path = state_path(job_id)
    local file, problem = io.open(path .. ".new", "w")
    if file == nil then
        return "cannot store the state of the job: " .. tostring(problem)
    end
    file:write(table.concat(lines, "\n"), "\n")
    file:close()
    os.rename(path .. ".new", path)
    return nil
end

local function read_state(job_id)
    local found = {}
    local file = io.open(state_path(job_id), "r")
    if file ~= nil then
        for line in file:lines() do
            local kind, value = line:match("^(%a+) (.*)$")
            found[#found + 1] = { kind = kind, value = value }
        end
        file:close()
    end
    return found
end

-- Functions that Slurm calls -----------------------------------------------------------------------

-- Checks the directives. Slurm rejects the job with the returned text if they are wrong.
function slurm_bb_job_process(job_script, uid, gid)
    local found, wrong = read_operations(job_script)
    if found == nil then
        return slurm.ERROR, wrong
    end
    return slurm.SUCCESS
end

function slurm_bb_pools()
    return slurm.SUCCESS
end

-- Checks that the endpoint accepts the user, before the job waits for its data.
function slurm_bb_setup(job_id, uid, gid, pool, bb_size, job_script)
    local code, output = dray(uid, { "stage", "list", "--limit", "1" })
    if code ~= 0 then
        return slurm.ERROR, "the endpoint does not accept the user: " .. last_line(output)
    end
    return slurm.SUCCESS
end

-- Returns the arguments of `dray stage in` or `dray stage out` after the id.
local function stage_words(operation, id)
    local direction = operation.operation == "out" and "out" or "in"
    local words = { "stage", direction, "--id", id }
    if operation.path ~= nil then
        words[#words + 1] = operation.path
    end
    for _, key in ipairs({ "to", "application", "version" }) do
        if operation[key] ~= nil then
            words[#words + 1] = "--" .. key
            words[#words + 1] = operation[key]
        end
    end
    if operation.recursive == "yes" then
        words[#words + 1] = "--recursive"
    end
    return words
end

local function restart(job_id, uid, index, operation, state)
    -- A requeued job may get another version, and an id belongs to one version.
    local id = ("slurm-%s-%d-%d"):format(job_id, index, os.time())
    local words = stage_words(operation, id)
    for _, word in ipairs({ "--pin", config.pin, "--json" }) do
        words[#words + 1] = word
    end
    local code, output = dray(uid, words)
    if code ~= 0 then
        if operation.version == nil and output:match('"kind":%s*"not_found"') then
            state[#state + 1] = "env DRAY_RESTART="
            return slurm.SUCCESS
        end
        return failed(operation, output)
    end
    local to = output:match('"to":%s*"([^"\\]*)"')
    local below = to and to:match("^/" .. config.fast_root:gsub("%p", "%%%0") .. "/(.*)$")
    if below == nil then
        return slurm.ERROR, "the checkpoint is not in the fast root: " .. tostring(to)
    end
    state[#state + 1] = "keep " .. id
    state[#state + 1] = "env DRAY_RESTART=" .. config.fast_mount .. "/" .. below
    return slurm.SUCCESS
end

-- Brings the data of the job to the fast root, and waits for it.
function slurm_bb_data_in(job_id, job_script, uid, gid)
    local found, wrong = read_operations(job_script)
    if found == nil then
        return slurm.ERROR, wrong
    end
    local state = {}
    -- An interrupted call may have pinned copies.
    for _, line in ipairs(read_state(job_id)) do
        if line.kind ~= "env" then
            state[#state + 1] = line.kind .. " " .. line.value
        end
    end
    for index, operation in ipairs(found) do
        local code, message = slurm.SUCCESS, nil
        if operation.operation == "restart" then
            code, message = restart(job_id, uid, index, operation, state)
        elseif operation.operation == "in" then
            local id = ("slurm-%s-%d"):format(job_id, index)
            local words = stage_words(operation, id)
            words[#words + 1] = "--pin"
            words[#words + 1] = config.pin
            -- Store the id before the copy starts, so that a cancelled job removes the copy too.
            state[#state + 1] = (operation.keep == "yes" and "keep " or "copy ") .. id
            write_state(job_id, state)
            local exit, output = dray(uid, words)
            if exit ~= 0 then
                code, message = failed(operation, output)
            end
        end
        local problem = write_state(job_id, state)
        if code ~= slurm.SUCCESS then
            return code, message
        end
        if problem ~= nil then
            return slurm.ERROR, problem
        end
    end
    return slurm.SUCCESS
end

function slurm_bb_real_size(job_id, uid, gid)
    return slurm.SUCCESS
end

-- Writes the environment of the job.
function slurm_bb_paths(job_id, job_script, path_file, uid, gid)
    local file = io.open(path_file, "w")
    if file == nil then
        return slurm.ERROR, "cannot write " .. path_file
    end
    for _, line in ipairs(read_state(job_id)) do
        if line.kind == "env" then
            file:write(line.value, "\n")
        end
    end
    file:close()
    return slurm.SUCCESS
end

function slurm_bb_pre_run(job_id, job_script, uid, gid)
    return slurm.SUCCESS
end

function slurm_bb_post_run(job_id, job_script, uid, gid)
    return slurm.SUCCESS
end

-- Copies the results of the job to the slow root, and waits for the copies.
function slurm_bb_data_out(job_id, job_script, uid, gid)
    local found, wrong = read_operations(job_script)
    if found == nil then
        return slurm.ERROR, wrong
    end
    for index, operation in ipairs(found) do
        if operation.operation == "out" then
            local id = ("slurm-%s-%d"):format(job_id, index)
            local code, output = dray(uid, stage_words(operation, id))
            if code ~= 0 then
                return failed(operation, output)
            end
        end
    end
    return slurm.SUCCESS
end

-- Removes the pins of the job, and the fast copies that were staged in for it. The endpoint keeps a
-- file that has no slow copy, and a copy that another job has pinned. So a refused eviction is no
-- error.
function slurm_bb_job_teardown(job_id, job_script, hurry, uid, gid)
    for _, line in ipairs(read_state(job_id)) do
        if line.kind == "copy" or line.kind == "keep" then
            local code, output = dray(uid, { "stage", "unpin", line.value })
            if code == 0 and line.kind == "copy" then
                code, output = dray(uid, { "stage", "evict", line.value })
            end
            if code ~= 0 then
                slurm.log_info("%s: job %s keeps a fast copy: %s", NAME, job_id, last_line(output))
            end
        end
    end
    os.remove(state_path(job_id))
    return slurm.SUCCESS
end

-- Shows the tiers to the caller of `scontrol show bbstat`.
function slurm_bb_get_status(uid, gid, ...)
    local code, output = dray(uid, { "tier", "show", ... })
    if code ~= 0 then
        return slurm.ERROR, last_line(output)
    end
    return slurm.SUCCESS, output
end
