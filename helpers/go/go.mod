module github.com/ottla/ottla/helpers/go

go 1.22
